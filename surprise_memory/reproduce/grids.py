"""Every grid by name: the paper's, those about noise, and other questions."""

from surprise_memory.reproduce.grid import Grid
from surprise_memory.reproduce.noise_grids import NOISE
from surprise_memory.reproduce.paper_grids import PAPER
from surprise_memory.reproduce.study_grids import STUDIES

GRIDS: dict[str, Grid] = PAPER | NOISE | STUDIES

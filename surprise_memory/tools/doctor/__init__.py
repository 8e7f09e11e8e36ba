"""Is this bonus alive, does the memory change anything, does it follow rarity, is it fooled by noise?

`stream` lives through rollouts of a random policy, `measures` are the pure functions that judge them, `examination` repeats it
over seeds, `verdict` says it in sentences, `report` prints and draws it.
"""

from surprise_memory.tools.doctor.examination import examine
from surprise_memory.tools.doctor.report import plot_diagnosis, print_diagnosis
from surprise_memory.tools.doctor.verdict import Diagnosis

__all__ = ["Diagnosis", "examine", "plot_diagnosis", "print_diagnosis"]

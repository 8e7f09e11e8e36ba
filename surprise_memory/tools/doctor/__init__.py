"""Is a bonus alive, does its memory change anything, does it follow rarity, is it fooled by noise?

`stream` plays rollouts of a random policy, lets a bonus learn from them and asks it. `seen` is what
is kept of that, and `values` sums it up with the pure functions in `measures`. `examination`
repeats it over seeds. `verdict` says it in sentences, `report` prints it, `figure` draws it.
"""

from surprise_memory.tools.doctor.diagnosis import Diagnosis
from surprise_memory.tools.doctor.examination import examine
from surprise_memory.tools.doctor.figure import plot_diagnosis
from surprise_memory.tools.doctor.report import print_diagnosis

__all__ = ["Diagnosis", "examine", "plot_diagnosis", "print_diagnosis"]

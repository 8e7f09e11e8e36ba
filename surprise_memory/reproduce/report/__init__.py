"""Tables, intervals and curves of what was reproduced, beside the paper's numbers."""

from surprise_memory.reproduce.report.archive import keep
from surprise_memory.reproduce.report.page import write_report

__all__ = ["keep", "write_report"]

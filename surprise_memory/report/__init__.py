"""Tables, intervals and curves of what was reproduced, beside the paper's numbers."""

from surprise_memory.report.keep import keep
from surprise_memory.report.page import write_report

__all__ = ["keep", "write_report"]

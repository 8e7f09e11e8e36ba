"""Tables, intervals and curves of what was reproduced, beside the paper's numbers."""

from surprise_memory.report.page import write_report

__all__ = ["write_report"]

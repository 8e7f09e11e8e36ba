"""Tables, intervals and curves of what was reproduced, beside the paper's numbers. No torch."""

from surprise_memory.reproduce.report.archive import archive_runs
from surprise_memory.reproduce.report.page import Report, write_report

__all__ = ["Report", "archive_runs", "write_report"]

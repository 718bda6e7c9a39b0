"""`roann report`: run directories to one HTML file that opens offline."""

from roann.lab.figures.style import duration
from roann.lab.report.page import render, write_report
from roann.lab.report.results import LOST, Arm, Goal, Outcome
from roann.lab.report.runs import ReportError, Run, load_run, load_runs
from roann.lab.report.summary import sections_of

__all__ = [
    "LOST",
    "Arm",
    "Goal",
    "Outcome",
    "ReportError",
    "Run",
    "duration",
    "load_run",
    "load_runs",
    "render",
    "sections_of",
    "write_report",
]

"""The reproduction of the paper: what was planned, claimed, run and found. Not installed.

`python -m paper run` makes the runs, `collect` thins them to records in `results/`, `tables` writes
the generated tables of `findings.md` and `README.md` from the records alone.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The checkout."""

"""Probes before and after a training that a wall time ends, so that they cost it nothing."""

from __future__ import annotations

import json
from pathlib import Path

from roann.lab import checkpoint, records, run
from roann.lab.config import parse, read_tables
from roann.lab.probe import probe
from roann.lab.reproduce.collect import ENDS


def probe_ends(folder: Path) -> None:
    """Probe the model of a run as it began and as it ended, into `ends.jsonl`; once."""
    result, found = run.result_of(folder), checkpoint.newest(folder / run.CHECKPOINTS, touch=False)
    if result is None or found is None or (folder / ENDS).exists():
        return
    experiment = parse(read_tables(folder / run.CONFIG))
    run.set_up(experiment.train.threads, experiment.train.seed)
    task, model = run.build(experiment)
    lines = [{"step": 0} | probe(task, model, experiment.train.seed)]
    checkpoint.unpack(found.tensors, model, None)
    if result["status"] != "diverged":
        lines.append({"step": found.step} | probe(task, model, experiment.train.seed))
    common = {"kind": "probe", "epoch": None, "seconds": None}
    text = "".join(json.dumps(records.plain(common | line)) + "\n" for line in lines)
    checkpoint.replace_file(folder / ENDS, text.encode())

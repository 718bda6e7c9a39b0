"""Invented run directories for tests of figures and the report: shaped like runs, never run."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from roann.lab.config import to_toml

ENV = {"roann": "0.1.0", "torch": "2.13.0+cpu", "python": "3.12.3", "cpu": "a test", "threads": 1}
ADDING = {"name": "adding", "length": 200}
ROA = {"name": "roa-rnn", "hidden_size": 128, "rho": 0.005, "filter": "qr"}
GOALS: dict[str, dict[str, Any]] = {
    "adding": {"primary": "mse", "better": "lower", "trivial": {"mse": 1 / 6}},
    "copying": {
        "primary": "recall_accuracy",
        "better": "higher",
        "trivial": {"cross_entropy": 10 * math.log(8) / 420, "recall_accuracy": 0.125},
    },
    "psmnist": {
        "primary": "accuracy",
        "better": "higher",
        "trivial": {"cross_entropy": math.log(10), "accuracy": 0.1135},
    },
    "double-moon": {
        "primary": "mse",
        "better": "lower",
        "trivial": {"mse": 1.0, "accuracy": 0.5},
    },
}


def write_run(
    folder: Path,
    *,
    task: dict[str, Any],
    model: dict[str, Any],
    evals: list[dict[str, Any]],
    train: dict[str, Any] | None = None,
    probes: list[dict[str, Any]] | None = None,
    status: str | None = "finished",
    seconds: float = 12.5,
) -> Path:
    """Write one run directory; `status` None leaves it unfinished."""
    folder.mkdir(parents=True)
    plan = {"optimizer": "adam", "lr": 0.5, "seed": 0, **(train or {})}
    facts = {"task": task["name"], "model": model["name"], "seed": plan["seed"]}
    facts |= GOALS.get(task["name"], GOALS["adding"]) | {"parameters": 16_897}
    tables = {"task": task, "model": model, "train": plan}
    (folder / "config.toml").write_text(to_toml(tables), encoding="utf-8")
    start = {"kind": "event", "step": 0, "epoch": None, "seconds": 0.0, "event": "start"}
    lines = [start | facts]
    for record in evals:
        lines.append({"kind": "eval", "epoch": None, "seconds": 1.0, "set": "eval"} | record)
    for record in probes or []:
        lines.append({"kind": "probe", "epoch": None, "seconds": 1.0} | record)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    (folder / "env.json").write_text(json.dumps(ENV), encoding="utf-8")
    if status is not None:
        steps = max((record["step"] for record in evals), default=0)
        cause = "the loss is nan in update 701" if status == "diverged" else "all steps done"
        result = {"status": status, "steps": steps, "seconds": seconds, "cause": cause}
        (folder / "result.json").write_text(json.dumps(result | facts), encoding="utf-8")
    return folder


def adding_evals(rate: float, seed: int, points: int = 30) -> list[dict[str, Any]]:
    """A mean squared error that falls exponentially at `rate` per hundred steps, with noise."""
    noise = random.Random(seed)
    return [
        {"step": 100 * k, "mse": (math.exp(-rate * k) + 3e-4) / 6 * math.exp(noise.gauss(0, 0.15))}
        for k in range(1, points + 1)
    ]


def copying_evals(pace: float, seed: int, collapse: int | None = None) -> list[dict[str, Any]]:
    """A recall that rises along a logistic curve, and falls back to chance after `collapse`."""
    noise = random.Random(seed)
    rows = []
    for k in range(1, 41):
        risen = 1 / (1 + math.exp(-pace * (k - 14 - 2 * noise.random())))
        if collapse is not None and k > collapse:
            risen = 0.0
        recall = 0.125 + 0.874 * risen
        loss = 10 * math.log(8) / 420 * max(1 - risen, 1e-4)
        rows.append({"step": 50 * k, "recall_accuracy": recall, "cross_entropy": loss})
    return rows


def psmnist_evals(ceiling: float, seed: int, validation: bool = False) -> list[dict[str, Any]]:
    """A test accuracy that saturates below `ceiling`."""
    noise = random.Random(seed)
    rows = []
    for epoch in range(1, 21):
        accuracy = ceiling - 0.075 * math.exp(-epoch / 3.5) + noise.gauss(0, 0.001)
        scores = {"step": 600 * epoch, "epoch": float(epoch), "cross_entropy": 0.3 / epoch + 0.05}
        if validation:
            rows.append(scores | {"set": "validation", "accuracy": accuracy - 0.001})
        rows.append(scores | {"set": "test", "accuracy": accuracy})
    return rows


def probe(step: int, kind: str, seed: int = 0) -> dict[str, Any]:
    """What `roann.lab.probe` writes, invented: flat for roa, vanishing otherwise."""
    noise = random.Random(seed + step)
    roa = kind == "roa"
    fall = 0.0 if roa else 0.12 if kind == "lstm" else 0.9
    times = list(range(0, 400, 2))
    angles = [2 * math.pi * noise.random() for _ in range(64)]
    size = 0.97 if roa else 0.4
    made: dict[str, Any] = {
        "step": step,
        "maps": 400,
        "sigma": [round(noise.gauss(-1, 0.6) - 200 * fall, 4) for _ in range(64)],
        "eigenvalues": [
            [round(r * math.cos(a), 5), round(r * math.sin(a), 5)]
            for a in angles
            for r in [size * (1 + 0.03 * noise.gauss(0, 1))]
        ],
        "gradient_at": times,
        "gradient_by_step": [math.exp(-fall * (399 - t) + 0.1 * noise.gauss(0, 1)) for t in times],
        "norm_W": 27 * (1 + step / 400),
    }
    if roa:
        half = 0.1 * made["norm_W"]
        made["bound"] = {"lower": -half, "upper": half, "vacuous": half > 16, "hypothesis": True}
    return made


def surface(seed: int = 0) -> dict[str, Any]:
    """Answers over the plane, and points, in the form a double-moon probe holds."""
    noise = random.Random(seed)
    points = []
    for k in range(300):
        side, angle = (-1, 1)[k % 2], math.pi * noise.random()
        radius = 10 + 3 * (2 * noise.random() - 1)
        x1, x2 = radius * math.cos(angle), radius * math.sin(angle)
        points.append([round(x1, 3), round(x2, 3), -1] if side < 0 else
                      [round(10 + x1, 3), round(5 - x2, 3), 1])  # fmt: skip
    values = [
        [round(math.tanh(0.35 * (6 * math.sin(x1 / 7 - 0.6) - x2 + 2)), 4)
         for x1 in (-20 + 50 * i / 59 for i in range(60))]
        for x2 in (-15 + 35 * j / 41 for j in range(42))
    ]  # fmt: skip
    return {"extent": [-20, 30, -15, 20], "values": values, "points": points}


def write_many(root: Path) -> list[Path]:
    """A library of runs: every section and figure of the report has something to show."""
    made = []

    def add(name: str, **options: Any) -> None:
        made.append(write_run(root / name, **options))

    copying = {"name": "copying", "lag": 400, "symbols": 10}
    roa = {"name": "roa-rnn", "hidden_size": 190, "rho": 3.0, "filter": "qr"}
    for seed in range(5):
        add(f"copying-roa-s{seed}", task=copying, model=roa, train={"seed": seed},
            evals=copying_evals(0.6, seed, collapse=17 if seed == 3 else None), seconds=300.0,
            probes=[probe(step, "roa", seed) for step in (0, 500, 1000, 2000)])  # fmt: skip
    for seed in range(2):
        add(f"copying-lstm-s{seed}", task=copying, model={"name": "lstm", "hidden_size": 190},
            train={"seed": seed, "lr": 5e-3}, evals=copying_evals(0.05, seed),
            probes=[probe(2000, "lstm", seed)])  # fmt: skip
        add(f"copying-vanilla-s{seed}", task=copying,
            model={"name": "vanilla-rnn", "hidden_size": 190}, train={"seed": seed, "lr": 1e-4},
            evals=copying_evals(0.0, seed)[: 14 if seed else 40],
            status="diverged" if seed else "finished",
            probes=[probe(2000, "vanilla", seed)])  # fmt: skip
    adding = {"name": "adding", "length": 200}
    for place, rho in enumerate((1 / 300, 1 / 200, 1 / 100, 1 / 10, 1.0, 10.0)):
        for seed in range(2):
            add(f"adding-rho{place}-s{seed}", task=adding,
                model={"name": "roa-rnn", "hidden_size": 128, "rho": rho, "filter": "qr"},
                train={"seed": seed}, evals=adding_evals(0.35 - 0.06 * place, seed),
                status="diverged" if rho == 10.0 and seed else "finished")  # fmt: skip
    for name in ("qr", "haar", "permutation", "cycle", "identity"):
        for seed in range(5):
            rate = 0.03 if name == "identity" else 0.3
            add(f"adding-filter-{name}-s{seed}", task={"name": "adding", "length": 1000},
                model={"name": "roa-rnn", "hidden_size": 128, "rho": 1.0, "filter": name},
                train={"seed": seed}, evals=adding_evals(rate, seed))  # fmt: skip
    psmnist = {"name": "psmnist", "permutation": "nengo"}
    for size, best in ((178, 0.9735), (256, 0.9780), (512, 0.9821)):
        for seed in range(3 if size == 178 else 1):
            add(f"psmnist-{size}-s{seed}", task=psmnist, seconds=5400.0,
                model={"name": "roa-rnn", "hidden_size": size, "rho": 0.5, "filter": "qr"},
                train={"seed": seed, "lr": 0.1}, evals=psmnist_evals(best, seed, True),
                status=None if size == 512 else "finished")  # fmt: skip
    moons = {"name": "double-moon", "points": 1000}
    for model, last in (
        ({"name": "fnn", "layers": 3, "width": 72}, 0.02),
        ({"name": "roa-fnn", "layers": 50, "width": 2, "rho": 5.0}, 0.005),
    ):
        evals = [
            {"step": 10 * e, "epoch": float(e), "mse": last + math.exp(-e / 9),
             "accuracy": 1 - 0.5 * math.exp(-e / 9)}
            for e in range(1, 51)
        ]  # fmt: skip
        add(f"moons-{model['name']}", task=moons, model=model, train={"optimizer": "sgd"},
            evals=evals, probes=[{"step": 500, "surface": surface()}])  # fmt: skip
    return made

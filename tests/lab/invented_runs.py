"""Runs of known outcome, invented: what verdicts and pages are tested with."""

from roann.lab.report import Run
from roann.lab.reproduce.reading import arms_of

GOALS = {
    "copying": ("recall_accuracy", "higher", {"recall_accuracy": 1 / 8, "cross_entropy": 0.05}),
    "adding": ("mse", "lower", {"mse": 1 / 6}),
    "psmnist": ("accuracy", "higher", {"accuracy": 0.1135}),
    "double-moon": ("mse", "lower", {"mse": 1.0}),
}


def run(name, task, scores, status="finished", model=None, train=None, probes=(), every=100, T=9):
    """A run whose primary score goes through `scores`, one evaluation each."""
    primary, better, trivial = GOALS[task]
    seed = int(name.rpartition("-s")[2])
    facts = {
        "primary": primary,
        "better": better,
        "trivial": trivial,
        "parameters": 1234,
        "effective_parameters": 1230,
    }
    lines = [{"kind": "event", "event": "start", "step": 0, "seconds": 0.0, **facts}]
    for k, score in enumerate(scores, 1):
        values = {primary: score} if not isinstance(score, dict) else score
        place = {"step": k * every, "epoch": float(k), "seconds": float(k)}
        where = "test" if task == "psmnist" else "eval"
        lines.append({"kind": "eval", "set": where, **place, **values})
        lines.append({"kind": "train", "loss": 0.1, "accuracy": 0.999, **place})
    lines += [{"kind": "probe", "seconds": 0.0, **probe} for probe in probes]
    passes = task == "psmnist"
    length = {"unit": "epoch", "length": 20} if passes else {"unit": "step", "length": 4000}
    config = {
        "task": {"name": task, "length": T, "batch_size": 50, "eval_batches": 4},
        "model": {"name": "roa-rnn", "filter": "qr", "hidden_size": 178, "rho": 1.0}
        | (model or {}),
        "train": {"seed": seed, "lr": 0.5, "optimizer": "adam", "threads": 1, **length}
        | (train or {}),
    }
    result = {"status": status, "steps": len(scores) * every, "seconds": 10.0}
    return Run(name, config, "", lines, {"torch": "2"}, result if status != "unfinished" else {})


def book_of(**figures):
    return {figure: arms_of(runs) for figure, runs in figures.items()}


def probe(step, norm):
    """What a probe saw: ‖W‖, and singular values of which one is zero."""
    return {"step": step, "norm_W": norm, "sigma": [1.0, None]}

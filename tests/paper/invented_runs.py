"""Runs of known outcome, invented: what rules and tables are tested with."""

from paper.collect import arms_of
from roann.lab.report import Run

GOALS = {
    "copying": ("recall_accuracy", "higher", {"recall_accuracy": 1 / 8, "cross_entropy": 0.05}),
    "adding": ("mse", "lower", {"mse": 1 / 6}),
    "psmnist": ("accuracy", "higher", {"accuracy": 0.1135}),
    "double-moon": ("mse", "lower", {"mse": 1.0}),
}


def run(name, task, scores, status="finished", model=None, train=None, probes=(), every=100):
    """A run whose primary score goes through `scores`, one evaluation each."""
    primary, better, trivial = GOALS[task]
    seed = int(name.rpartition("-s")[2])
    facts = {"primary": primary, "better": better, "trivial": trivial, "parameters": 1234}
    facts |= {"effective_parameters": 1230}
    lines = [{"kind": "event", "event": "start", "step": 0, "seconds": 0.0, **facts}]
    for k, score in enumerate(scores, 1):
        values = {primary: score} if not isinstance(score, dict) else score
        place = {"step": k * every, "epoch": float(k), "seconds": float(k)}
        where = "test" if task == "psmnist" else "eval"
        lines.append({"kind": "eval", "set": where, **place, **values})
        lines.append({"kind": "train", "loss": 0.1, **place})
    lines += [{"kind": "probe", "seconds": 0.0, **probe} for probe in probes]
    unit = (
        {"unit": "epoch", "length": 20} if task == "psmnist" else {"unit": "step", "length": 4000}
    )
    config = {
        "task": {"name": task},
        "model": {"name": "roa-rnn", "hidden_size": 178, "rho": 1.0} | (model or {}),
        "train": {"seed": seed, "lr": 0.5, "threads": 1, **unit} | (train or {}),
    }
    result = {"status": status, "steps": len(scores) * every, "seconds": 10.0}
    env = {"cpu": "A", "native_kernel": "avx2", "threads": 1, "torch": "2"}
    return Run(name, config, "", lines, env, result if status != "unfinished" else {})


def arm(*runs):
    """The one arm of some runs."""
    (found,) = arms_of(runs).values()
    return found

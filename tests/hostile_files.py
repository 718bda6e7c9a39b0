"""Mutated model files, and a process that loads them and would die of what they should not do.

`python hostile_files.py FOLDER FIRST COUNT` loads COUNT mutations, numbered from FIRST, each a
function of its number, and prints a JSON record. Address space is limited to what the process had
before the first one and ROOM, so a file that asks for more gets a MemoryError.
"""

import collections
import json
import math
import os
import random
import resource
import struct
import sys
import time
import tracemalloc
from pathlib import Path

import torch
from torch import nn

import roann
from roann import Roa, RoaEuler, RoaFlow, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell

ROOM = 64 << 20  # bytes of address space: the files have some kB
MULTIPLE = 64  # bytes of Python objects for each byte of a file, above BASE
BASE = 1 << 20
FORBIDDEN = (
    "pickle.find_class",
    "os.",
    "subprocess.",
    "socket.",
    "ctypes.dlopen",
    "exec",
    "compile",
)
HARMLESS = ("os.listdir", "os.scandir")


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = RoaRNN(3, 4, horizon=9, filter="permutation")
        self.block = Roa(nn.Linear(4, 4), alpha=0.1, filter="rotations")
        self.head = nn.Linear(4, 2)

    def forward(self, u):
        return self.head(self.block(self.rnn(u)[0]))


FILTERS = ("qr", "haar", "permutation", "identity", "cycle", "rotations")
MODELS = {name: lambda name=name: RoaRNN(3, 4, horizon=9, filter=name) for name in FILTERS} | {
    "bidirectional": lambda: RoaRNN(3, 4, 2, bidirectional=True, horizon=9),
    "vector": lambda: RoaRNN(3, 4, alpha=torch.linspace(0, 1, 4)),
    "given": lambda: RoaRNN(3, 4, horizon=9, filter=torch.eye(4)),
    "householder": lambda: RoaRNNCell(
        3, 4, horizon=9, filter={"name": "householder", "reflections": 2}
    ),
    "double": lambda: RoaRNNCell(3, 4, horizon=9, filter="rotations", dtype=torch.float64),
    "layer": lambda: RoaLayer(3, 4, horizon=9, bias=False, filter="permutation"),
    "deep": lambda: RoaFNN([3] * 40 + [2], rho=5.0, filter="permutation"),
    "learned": lambda: RoaFNN([3, 3, 3, 2, 5], learn_rho=True, filter="rotations"),
    "ode": lambda: RoaODE(3, 4, horizon=9, dt=0.25),
    "euler": lambda: RoaEuler(3, 4, alpha=0.1),
    "solver": lambda: RoaFlow(3, 4, alpha=0.1, method="rk4", learn_rho=True),
    "own": Own,
}
DTYPES = ["BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64"]
DTYPES += ["F8_E4M3", "F8_E5M2", "F4", "C64", "X"]
NUMBERS = [0, 1, -1, 2, 3, 5000, -100000, 10**5, 10**10, 2**63 - 1, 2**64, 10**30, -(10**30)]
NUMBERS += [0.5, 1.5, 1e30, -1e30, 1e-300, math.inf, -math.inf, math.nan]
WORDS = [
    "",
    "x",
    "relu",
    "cycle",
    "given",
    "native",
    "reversible",
    "RoaFNN",
    "RoaODE",
    "builtins.eval",
]
WORDS += [
    "os.system",
    "__import__('os')",
    "float16",
    "float8_e4m3fn",
    "load",
    "dopri5",
    "\x1b[2J",
    "é" * 2000,
]
KEYS = ["device", "dtype", "generator", "rho", "horizon", "depth", "name", "self", "args", "sizes"]


def nested(depth):
    return "@" + str(depth)  # written as that many brackets: see `text`


def text(value):
    """JSON, with nested lists deeper than `json.dumps` writes."""
    out = json.dumps(value)
    for depth in (50, 900, 100_000):
        out = out.replace(f'"@{depth}"', "[" * depth + "]" * depth)
    return out


def anything(r):
    lists = [
        [],
        {},
        [[2, 10**10]],
        [[2, 10**10], [2, -(10**10)]],
        [[1 + i % 2, 1] for i in range(1000)],
    ]
    lists += [{"run_lengths": [[3, 10**10]]}, {"name": "qr"}, {"name": "householder"}, [0.5] * 4]
    plain = r.choice(NUMBERS), r.choice(WORDS), r.choice([None, True, False])
    return r.choice([*plain, r.choice(lists), nested(r.choice([50, 900, 100_000]))])


def places(tree):
    """Every (container, key) of a JSON tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(items):
        yield tree, key
        if isinstance(value, dict | list):
            yield from places(value)


def edit_tree(r, tree):
    where, key = r.choice(list(places(tree)))
    how = r.random()
    if how < 0.15:
        del where[key]
    elif how < 0.3 and isinstance(where, dict):
        where[r.choice(KEYS)] = anything(r)
    else:
        where[key] = anything(r)


def edit_about(r, header, about, data):
    meta = header.setdefault("__metadata__", {})
    if r.random() < 0.1:
        meta[r.choice(["format", "version", "x"])] = str(anything(r))
        return data
    for _ in range(r.choice([1, 1, 1, 2, 5])):
        if about:
            edit_tree(r, about)
    return data


def edit_header(r, header, about, data):
    names = [k for k in header if k != "__metadata__"]
    if not names:
        return data
    name = r.choice(names)
    entry, how = header[name], r.randrange(7)
    if how == 0:
        entry["dtype"] = r.choice(DTYPES)
    elif how == 1:
        entry["shape"] = [r.choice(NUMBERS) for _ in range(r.randrange(5))]
    elif how == 2:
        entry["data_offsets"] = [r.choice([*NUMBERS, len(data)]) for _ in range(2)]
    elif how == 3:
        header[name] = dict(header[r.choice(names)])
    elif how == 4:
        header[name + r.choice(["", "_", ".x", "._extra_state"])] = header.pop(name)
    elif how == 5:
        other = r.choice(names)
        header[name], header[other] = header[other], header[name]
    else:
        entry["shape"] = [math.prod(entry["shape"])]
    return data


FORMS = {"F32": ("<f", 4), "F64": ("<d", 8), "I64": ("<q", 8)}


def edit_values(r, header, about, data):
    names = [k for k in header if k != "__metadata__" and header[k].get("dtype") in FORMS]
    if not names:
        return data
    entry = header[r.choice([n for n in names if "filter" in n or "alpha" in n] or names)]
    code, size = FORMS[entry["dtype"]]
    try:
        start, end = entry["data_offsets"]
        slots = range(start, end - size + 1, size)
        data = bytearray(data)
        for at in r.sample(slots, min(len(slots), r.choice([1, 1, 2, 100]))):
            value = r.choice(NUMBERS)
            if code == "<q":
                value = int(max(-(2**63), min(2**63 - 1, value))) if value == value else 7
            struct.pack_into(code, data, at, min(value, 1e38) if size == 4 else value)
    except (TypeError, ValueError, struct.error, OverflowError):
        pass  # another edit made the header of this one odd: then that is the mutation
    return bytes(data)


def flip(r, raw):
    raw = bytearray(raw)
    for _ in range(r.choice([1, 1, 2, 8, 64])):
        raw[r.randrange(len(raw))] ^= 1 << r.randrange(8)
    return bytes(raw)


def cut(r, raw):
    at, to = sorted(r.randrange(len(raw) + 1) for _ in range(2))
    return r.choice(
        [raw[:at], raw[:at] + raw[to:], raw[:to] + raw[at:], raw + raw[at:to], raw[at:]]
    )


def mutate(r, raw):
    """One mutation of a file."""
    length = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    about = json.loads(header["__metadata__"]["model"])
    edits = [edit_about, edit_about, edit_header, edit_values, edit_values]
    bytewise = r.random() < 0.25
    if not bytewise or r.random() < 0.2:
        for _ in range(r.choice([1, 1, 1, 2, 3])):
            data = r.choice(edits)(r, header, about, data)
        header["__metadata__"]["model"] = text(about)
        head = json.dumps(header).encode()
        head += b" " * (-len(head) % 8)
        length = len(head) if r.random() < 0.97 else r.choice([0, 2**40, 2**63])
        raw = length.to_bytes(8, "little") + head + data
    return r.choice([flip, flip, cut])(r, raw) if bytewise else raw


def attempt(file, kind):
    """Load and use one file: what came of it."""
    try:
        model = roann.load(file, into=Own()) if kind == "own" else roann.load(file)
    except ValueError as error:
        said = str(error)
        start = ("path: expected", "class in the file: expected", "into: expected")
        assert said.startswith(start), f"not worded: {said!r}"
        assert said.isprintable(), f"not one line: {said!r}"
        assert len(said) < 1500, f"not one sentence: {said!r}"
        return "refused"
    width = getattr(model, "input_size", None) or getattr(model, "in_features", None)
    width = width or (model.sizes[0] if isinstance(model, RoaFNN) else 3)
    weight = next(model.parameters())
    x = torch.ones(2, width, dtype=weight.dtype)
    try:
        model(x if isinstance(model, RoaRNNCell) else x.expand(5, 2, width))
    except ValueError as error:  # floats of two kinds, as the layer says of them in memory
        if "expected dtype" not in str(error):
            raise
        return "loaded, mixed dtypes"
    return "loaded"


def main(folder, first, count):
    folder, wrong, outcomes = Path(folder), [], collections.Counter()
    originals = {}
    torch.manual_seed(0)
    for kind, build in MODELS.items():
        roann.save(build(), folder / f"{kind}-{first}")
        originals[kind] = (folder / f"{kind}-{first}").read_bytes()
        assert attempt(folder / f"{kind}-{first}", kind) == "loaded"
    seen, slowest = [], 0.0
    sys.addaudithook(
        lambda event, _: (
            seen.append(event) if event.startswith(FORBIDDEN) and event not in HARMLESS else None
        )
    )
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    tracemalloc.start()
    file, mark = folder / f"mutated-{first}", folder / f"number-{first}"
    for number in range(first, first + count):
        mark.write_text(str(number))
        r = random.Random(number)
        kind = r.choice(list(MODELS))
        raw = mutate(r, originals[kind])
        file.write_bytes(raw)
        seen.clear()
        tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.perf_counter()
        try:
            outcome = attempt(file, kind)
        except BaseException as error:  # a panic of the Rust library is not an Exception
            outcome = f"{type(error).__name__}: {str(error)[:300]}"
            wrong.append([number, kind, outcome])
            outcome = "wrong"
        slowest = max(slowest, time.perf_counter() - began)
        peak = tracemalloc.get_traced_memory()[1] - before
        if peak > BASE + MULTIPLE * len(raw):
            wrong.append([number, kind, f"{peak} bytes for a file of {len(raw)}"])
        if seen:
            wrong.append([number, kind, f"ran {seen}"])
        outcomes[outcome] += 1
    record = {"outcomes": outcomes, "wrong": wrong[:20], "slowest": slowest}
    print(json.dumps(record))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

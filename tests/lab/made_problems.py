"""Small sets of series in the form of the real ones."""

import torch

from roann.lab.fsdd import Recording
from roann.lab.sound import Sound

HEAD = "@problemName Made\n@timeStamps false\n@classLabel true up down\n@data\n"


def line(k, length):
    """Series k of two channels: a ramp that rises or falls, and a constant."""
    sign = 1 if k % 2 else -1
    ramp = ",".join(str(sign * t + k) for t in range(length))
    return f"{ramp}:{','.join(['5'] * length)}:{'up' if k % 2 else 'down'}\n"


def write_problem(folder, lengths=tuple(range(3, 25)), test=(7, 30, 4), name="Made"):
    """`NAME_TRAIN.ts` and `NAME_TEST.ts` of ramps that rise or fall."""
    for part, sizes in (("TRAIN", lengths), ("TEST", test)):
        text = HEAD + "".join(line(k, length) for k, length in enumerate(sizes))
        (folder / f"{name}_{part}.ts").write_text(text, encoding="utf-8")


def recordings():
    """Tones of ten frequencies by one speaker, seven of each; numbers 0 to 4 are the test."""
    t = torch.arange(2000) / 8000
    return [
        Recording(digit, "ann", i, Sound(torch.sin(600 * (digit + 1) * t[: 300 + 200 * i]), 8000))
        for digit in range(10)
        for i in range(7)
    ]

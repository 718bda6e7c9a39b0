"""Private random streams: every number drawn in the lab is a function of named integers."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *key: str | int) -> torch.Generator:
    """A CPU generator that depends on (seed, *key) alone.

    The 64-bit seed is a hash, so neighbouring seeds or steps share nothing, and no stream ever
    advances another: the data of step k can be had without the data of steps 0 … k−1. The key
    names the stream, for instance ``"copying", "train", step``.
    """
    digest = hashlib.sha256(repr((seed, *key)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))

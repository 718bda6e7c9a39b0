"""Large buffers that are used again: a fresh one costs a page fault per 4 kB it holds.

A training step fills the same few (T, B, N) arrays over and over. `empty` hands them out as
ordinary tensors over anonymous memory maps; when the last tensor over a map dies, the map goes back
to a pool instead of to the operating system. The pool is bounded by `LIMIT`; `release` empties it.
A bound below what one step uses costs the faults again, step after step: see `idle_limit`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections import deque

import torch
from torch import Tensor


def machine_memory() -> int | None:
    """Bytes of memory the machine has; None where the system does not tell."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def idle_limit() -> int:
    """An eighth of the machine's memory, but 1 GiB at least and 4 GiB at most.

    The (T, B, N) arrays of 10,000 steps of a batch are a gigabyte each, and a step has several.
    """
    return min(max(1 << 30, (machine_memory() or 0) // 8), 1 << 32)


LIMIT = idle_limit()  # bytes kept idle, at most
SMALLEST = 1 << 20  # below this, torch's own allocator is as good
_HUGE = 1 << 21

_idle: deque[mmap.mmap] = deque()  # oldest first
_lock = threading.Lock()


def _trim(limit: int) -> None:
    """Drops the oldest idle maps until at most `limit` bytes remain. The lock is held."""
    while _idle and sum(map(len, _idle)) > limit:
        _idle.popleft()


def _give_back(block: mmap.mmap) -> None:
    # A finaliser may run at any allocation, also in a thread that holds the lock: it never waits.
    # Whoever holds the lock trims when done.
    _idle.append(block)
    if _lock.acquire(blocking=False):
        try:
            _trim(LIMIT)
        finally:
            _lock.release()


def _take(size: int) -> mmap.mmap:
    """An idle map of at least `size` bytes that wastes little, or a new one."""
    size = -(-size // _HUGE) * _HUGE
    with _lock:
        fitting = [block for block in list(_idle) if size <= len(block) <= size + size // 4]
        if fitting:
            block = min(fitting, key=len)
            _idle.remove(block)
            return block
        _trim(LIMIT)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """An uninitialised CPU tensor, from the pool if it is large."""
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size < SMALLEST or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.empty(shape, dtype=dtype)
    block = _take(size)
    # torch keeps `owner` alive as long as any tensor uses the memory.
    owner = (ctypes.c_char * size).from_buffer(block)
    weakref.finalize(owner, _give_back, block).atexit = False
    return torch.frombuffer(owner, dtype=dtype).view(shape)


def empty_like(t: Tensor) -> Tensor:
    """An uninitialised tensor of the shape, dtype and device of t, from the pool if it can be."""
    return empty(tuple(t.shape), t.dtype) if t.device.type == "cpu" else torch.empty_like(t)


def release() -> None:
    """Gives every idle buffer back to the operating system."""
    with _lock:
        _trim(0)

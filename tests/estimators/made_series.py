"""Small sets of series with known answers."""

import numpy as np


def waves(n=24, T=30, seed=0, channels=1):
    """Slow and fast waves of random phase, (n, T) or (n, T, C), and their classes."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    phase = random.uniform(0, 6, (n, 1, channels))
    t = np.arange(T)[None, :, None]
    X = np.sin((0.2 + 0.3 * y[:, None, None]) * t + phase)
    return (X[:, :, 0] if channels == 1 else X), np.array(["slow", "fast"])[y]


def ragged(n=24, seed=0, channels=1):
    """The same with lengths from 10 to 40."""
    X, y = waves(n, 40, seed, max(2, channels))
    lengths = np.random.default_rng(seed).integers(10, 41, n)
    return [row[:length, :channels] for row, length in zip(X, lengths, strict=True)], y

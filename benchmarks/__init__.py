"""Measure speed and memory: `python -m benchmarks`.

Contenders take turns in one run, with the same threads and flushed denormals; the best of several
rounds counts, after a warm-up. It needs torch only; others are skipped, with the reason.
"""

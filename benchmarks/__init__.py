"""Measure speed and memory: `python -m benchmarks`.

One run; contenders take turns, and the best of n rounds counts; the same threads and flushed
denormals for everyone; warm-up apart. It needs torch alone; what else is absent is said.
"""

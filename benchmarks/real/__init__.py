"""Real series: roann beside peers, on files that users have or can get.

`python -m benchmarks.real --data DIR` runs it. Records go to `results/real`, tables to
`docs/real.md`.
"""

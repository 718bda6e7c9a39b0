"""The scan, in several equal implementations; `reference` is the truth."""

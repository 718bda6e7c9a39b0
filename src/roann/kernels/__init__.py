"""The scan, in several equal implementations; `reference` defines it."""

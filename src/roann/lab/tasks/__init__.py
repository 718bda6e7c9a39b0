"""The tasks: one table, one row per task."""

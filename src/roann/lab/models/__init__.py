"""The compared systems: one table, one row per system."""

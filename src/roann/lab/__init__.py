"""The lab: tasks, models to compare, training, figures, report. The library needs none of it."""

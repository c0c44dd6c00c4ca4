"""Experiments: one file each, where environments, models and algorithms meet."""

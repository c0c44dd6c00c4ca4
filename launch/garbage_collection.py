"""`collect_seldom`: Python's garbage collector, set for programs that make many objects."""

import gc

THRESHOLDS = 10_000, 20, 20  # of the three generations; Python's own are 700, 10, 10


def collect_seldom() -> None:
    """Collect now, never look again at what is alive, and collect seldom from now on.

    A rollout makes thousands of short-lived lists in each decode program: with Python's thresholds
    the collections between two programs keep the device waiting
    (`benchmarks/studies/engine_overlap.py`), and each full one goes through all that was imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

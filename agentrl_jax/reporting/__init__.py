"""Progress, metrics files, statistics, plots."""

"""Cells, grids, measures and tables behind `agentrl-sweep`."""

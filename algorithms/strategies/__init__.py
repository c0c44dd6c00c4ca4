"""Rollout strategies: how a task becomes a group of trajectories."""

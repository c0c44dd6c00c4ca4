"""Rollout strategies (slot O): how a task becomes a group, beside the plain one of `agentrl_jax.strategies`."""

"""Sampling engines: continuous batching over KV slots, engine pools, remote servers."""

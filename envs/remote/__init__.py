"""Environments that run behind servers."""

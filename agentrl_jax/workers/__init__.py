"""Environments in processes, threads, on a Ray cluster, or in this process."""

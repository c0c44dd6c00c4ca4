"""Meshes, shardings and the processes of one run: all-gather, heartbeat, choice of a mesh."""

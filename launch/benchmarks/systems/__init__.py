"""The published systems and how much of each exists here: docs/systems.md."""

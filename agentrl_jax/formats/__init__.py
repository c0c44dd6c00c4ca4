"""Demonstrations and preferences in the formats of other programs, read and written."""

"""Dialogues with a simulated user, whose worth can be computed exactly."""

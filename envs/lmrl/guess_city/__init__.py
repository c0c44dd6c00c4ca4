"""Guess My City of LMRL-Gym, over a table of cities."""

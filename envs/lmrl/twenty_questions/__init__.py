"""Twenty Questions of LMRL-Gym, over a table of everyday things."""

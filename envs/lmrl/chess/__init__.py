"""LMRL-Gym's Chess and Chess Endgames: a game of White's against an opponent, move by move in standard algebraic notation."""

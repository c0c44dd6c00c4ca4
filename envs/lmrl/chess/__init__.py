"""Chess and Chess Endgames of LMRL-Gym: White against an opponent, moves in algebraic notation."""

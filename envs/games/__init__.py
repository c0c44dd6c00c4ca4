"""Games of several seats: Kuhn poker, tic-tac-toe, a small Hanabi."""

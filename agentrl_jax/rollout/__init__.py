"""Episodes: agents, sessions, rollout strategies, the runtime that plays them side by side."""

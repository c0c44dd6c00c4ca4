"""The capture endpoint: an agent program that nobody changed calls us as OpenAI, and its calls become trajectories (docs/capture.md)."""

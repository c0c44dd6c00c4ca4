"""Agent programs that play these worlds through the `openai` client and know nothing of training (docs/capture.md)."""

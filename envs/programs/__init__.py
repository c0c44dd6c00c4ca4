"""Agent programs that act through the `openai` client and know nothing of training."""

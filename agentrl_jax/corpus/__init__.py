"""Text for pretraining, generated: exercises by domain, each with the answer that is computed."""

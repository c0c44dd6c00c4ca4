"""What small experiments on Twenty Questions share: the game with ArCHer's ten words, and a tokenizer for critics."""

from collections.abc import Sequence
from typing import Any

from agentrl_jax.configs.small import Task
from agentrl_jax.envs.lmrl.twenty_questions.table import attributes, guess, things
from agentrl_jax.models.tokenizers import train_bpe

GAME = Task("TwentyQuestions-v0", "mixture", 288, 16, {"words": "subset"})


def question_tokens(texts: Sequence[str]) -> Any:
    """The critic's tokenizer: byte pairs of all questions and guesses, whatever the texts."""
    questions = [attribute.question for attribute in attributes()] + [guess(thing) for thing in things()]
    return train_bpe([f"{text}\n" for text in ("Questions:", "Yes.", "No.", *questions)], 384, all_bytes=False)

"""What small experiments on Twenty Questions share: the game with ArCHer's ten words, and a tokenizer for critics."""

from collections.abc import Sequence
from typing import Any

from transformers import AddedToken

from agentrl_jax.configs.small import Task
from agentrl_jax.envs.lmrl.twenty_questions.table import attributes, guess, things
from agentrl_jax.models.tokenizers import train_bpe

GAME = Task("TwentyQuestions-v0", "mixture", 288, 16, {"words": "subset"})


def question_tokens(texts: Sequence[str]) -> Any:
    """The critic's tokenizer, whatever the texts: each line that the game knows is one token, anything else byte pairs."""
    questions = [attribute.question for attribute in attributes()] + [guess(thing) for thing in things()]
    lines = ["Questions:", "Yes.", "No.", *questions]
    tokenizer = train_bpe([f"{line}\n" for line in lines], 384, all_bytes=False)
    tokenizer.add_tokens([AddedToken(line, rstrip=True, normalized=False) for line in lines])
    return tokenizer

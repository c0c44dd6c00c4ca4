"""Shared by small experiments on Twenty Questions: ArCHer's ten words, and a critic's tokenizer."""

from collections.abc import Sequence
from typing import Any

from transformers import AddedToken

from agentrl_jax.configs.small import SmallTask
from agentrl_jax.envs.lmrl.twenty_questions.knowledge import all_items, attributes, guess_question
from agentrl_jax.models.tokenizers import train_bpe

GAME = SmallTask("TwentyQuestions-v0", "mixture", 288, 16, {"words": "subset"})


def question_tokens(texts: Sequence[str]) -> Any:
    """The critic's tokenizer: each line of the game is one token, other text is byte pairs.

    `texts` are not used.
    """
    questions = [attribute.question for attribute in attributes()] + [
        guess_question(thing) for thing in all_items()
    ]
    lines = ["Questions:", "Yes.", "No.", *questions]
    tokenizer = train_bpe([f"{line}\n" for line in lines], 384, all_bytes=False)
    tokenizer.add_tokens([AddedToken(line, rstrip=True, normalized=False) for line in lines])
    return tokenizer

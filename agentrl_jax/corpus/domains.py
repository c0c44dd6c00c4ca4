"""The domains of the corpus of the base model, and how often each is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agentrl_jax.corpus.arithmetic import arithmetic
from agentrl_jax.corpus.episodes import Episodes
from agentrl_jax.corpus.exercise import Domain
from agentrl_jax.corpus.lists import lists
from agentrl_jax.corpus.python_programs import python_programs
from agentrl_jax.corpus.questions import questions
from agentrl_jax.corpus.sql import sql
from agentrl_jax.corpus.tool_calls import tool_calls


@dataclass(frozen=True)
class DomainShare:
    """A domain, and how many of a hundred documents are of it."""

    domain: Domain
    percent: int
    most: int = 1  # exercises of a document, of which only plain texts have several


NAVIGATION = Episodes(("MazeFO-v0", "MazePO-v0", "TextNav-v0", "KeyDoor-v0"))
DIALOGUES = Episodes(("TwentyQuestions-v0", "GuessCity-v0", "CarDealer-v0", "Advice-v0"))
GAMES = Episodes(
    (
        "Wordle-v0", "TicTacToe-v0", "MiniHanabi-v0", "Chain-v0", "Desk-v0", "Calculator-v0",
        "Arithmetic-v0", "Prover-v0", "Shop-v0", "HarbourCase-v0",
    )
)  # fmt: skip
# Lookup and PriceList are left out: they are tasks to learn, for a policy that starts from the
# base model.
DOMAINS: Mapping[str, DomainShare] = MappingProxyType(
    {
        "lists": DomainShare(lists, 14, most=4),
        "arithmetic": DomainShare(arithmetic, 13, most=4),
        "questions": DomainShare(questions, 13, most=2),
        "python": DomainShare(python_programs, 13, most=4),
        "sql": DomainShare(sql, 12, most=2),
        "tools": DomainShare(tool_calls, 14),
        "navigation": DomainShare(NAVIGATION, 7),
        "dialogues": DomainShare(DIALOGUES, 7),
        "games": DomainShare(GAMES, 7),
    }
)

"""`SearchProposals`: an agent that is given an answer searches, and asks a question that has it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.search.answers import normalized
from agentrl_jax.envs.search.protocols import PROPOSER
from agentrl_jax.envs.search.scripted import (
    SearchEpisode,
    give_up,
    next_look_up,
    random_action,
    search_for,
)
from agentrl_jax.envs.search.search_questions import SearchQuestions
from agentrl_jax.messages import Message

LEAST_CHARACTERS, MOST_CHARACTERS = 10, 1000
PREFIX = "According to the pages of this encyclopedia:"


def propose_question(env: SearchEpisode, rng: np.random.Generator) -> Message | str:
    """Searches for the answer and then back along the hops, and asks the question."""
    question, left = env.question, env.turns_left > 1
    if left and not env.queries:
        return search_for(env, "I look for the answer.", question.answers[0])
    for hop in reversed(question.hops) if left else ():
        action = next_look_up(env, hop)
        if action is not None:
            return action
    return env.protocol.write_answer("I can ask.", f"{PREFIX} {question.text}")


class SearchProposals(SearchQuestions):
    """The proposer's side of Search Self-play (arXiv 2510.18821): an answer and a number of hops
    are given, the agent searches and ends with a question in <question>.

    The reward is 1 for a valid question: of 10 to 1,000 characters and at least `min_words` words,
    without the answer in it, after at least two different searches of which none is repeated and
    one has found a page. Whether it can be answered is for a reader to check (the strategy
    `ProposerSolver`). `info` holds, beside the fields of `SearchQuestions`, `valid`; its `answer`
    is the question, its `gold` the given answer.

    Scripted policies: those of `SearchQuestions`.

    Args:
        pages, world_seed, fillers: of the generated encyclopedia.
        hops: of the question, 1 to 4; several: uniform between them.
        facts: relations and numbers of the question; none: all.
        split: of the answers, by where a question with each would start.
        top_k, page_characters, horizon, instruction: as in `SearchQuestions`.
        min_words: of a valid question.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": random_action,
            "expert": propose_question,
            "hasty": MixturePolicy(propose_question, give_up, 0.85),
            "mixture": MixturePolicy(propose_question, random_action, 0.9),
        }
    )

    def __init__(
        self,
        pages: int = 20_000,
        world_seed: int = 0,
        hops: int | Sequence[int] = (1, 2, 3, 4),
        split: str = "train",
        top_k: int = 3,
        page_characters: int = 1000,
        horizon: int = 14,
        instruction: bool = True,
        min_words: int = 10,
        fillers: int = 3,
        facts: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            pages,
            world_seed,
            hops,
            kinds="chain",
            split=split,
            top_k=top_k,
            page_characters=page_characters,
            horizon=horizon,
            instruction=instruction,
            fillers=fillers,
            facts=facts,
            render_mode=render_mode,
        )
        self.min_words = checked_int("min_words", min_words, 1, 100)
        self.protocol = PROPOSER
        self.rules = f"In at most {horizon} turns: {PROPOSER.instruction}"

    def _opening_text(self) -> str:
        count, answer = len(self.question.hops), self.protocol.disarmed(self.question.answers[0])
        return f"Ask a question over {count} facts whose answer is: {answer}"

    def _judge(self, answer: str | None, info: dict[str, Any]) -> tuple[float, bool]:
        info["valid"] = answer is not None and self._is_valid(answer)
        return float(info["valid"]), info["valid"]

    def _is_valid(self, question: str) -> bool:
        answer = f" {normalized(self.question.answers[0])} "
        terms = [normalized(query) for query in self.queries]
        return (
            LEAST_CHARACTERS <= len(question) <= MOST_CHARACTERS
            and len(question.split()) >= self.min_words
            and answer not in f" {normalized(question)} "
            and len(terms) > 1
            and len(set(terms)) == len(terms)
            and bool(self.read_titles)
        )

"""A scripted team of agents on `SearchQuestions`, whose transcript has Chain-of-Agents' roles."""

from typing import Protocol

import numpy as np

from agentrl_jax.envs.search.questions import Hop
from agentrl_jax.envs.search.scripted import (
    SearchEpisode,
    expert_action,
    next_look_up,
    read_fact,
    search_for,
)
from agentrl_jax.messages import Message

STRAY_PROBABILITY = 0.2  # of the searcher, for each fact
EARLY_PROBABILITY = 0.2  # of the answerer, once before the last fact


class TeamEpisode(SearchEpisode, Protocol):
    """What the team reads of `SearchQuestions`."""

    roles: tuple[str, ...]


def team_action(env: TeamEpisode, rng: np.random.Generator) -> Message | str:
    """A planner names the facts; a searcher looks them up and errs at times; a reflector grades
    what was found, and the planner mends it; an answerer suggests, at times too early; and a
    checker scores the suggestion from 1 to 4, of which 3 and more make it the answer.

    In a protocol without roles it is the expert.
    """
    if not env.protocol.has_roles or env.turns_left <= 1:
        return expert_action(env, rng)
    for place, hop in enumerate(env.question.hops):
        look = next_look_up(env, hop)
        if look is not None:
            look = _stray_search(env, rng) if _strays(env, rng, hop) else look
            return look.replace(content=_roles_before(env, rng, place) + look.text)
    answer = expert_action(env, rng)
    assert isinstance(answer, str)
    return f"{_reflection(env)}{answer}" if env.roles else answer


def _needed_queries(env: TeamEpisode) -> set[str]:
    return {query for hop in env.question.hops for query in hop.queries}


def _has_strayed(env: TeamEpisode) -> bool:
    """Whether the last look-up was a search that no fact needs."""
    last = env.roles[-2] if len(env.roles) > 1 else ""
    return last == "wiki_search" and env.queries[-1] not in _needed_queries(env)


def _strays(env: TeamEpisode, rng: np.random.Generator, hop: Hop) -> bool:
    untried = not any(query in env.queries for query in hop.queries)
    return untried and not _has_strayed(env) and bool(rng.random() < STRAY_PROBABILITY)


def _stray_search(env: TeamEpisode, rng: np.random.Generator) -> Message:
    pages = env.index.pages
    title = pages[int(rng.integers(len(pages)))].title
    return search_for(env, f"I search for {title}.", title)


def _reflection(env: TeamEpisode) -> str:
    """The reflector's grade of the last look-up."""
    if _has_strayed(env):
        return "<reflection>poor: that is something else</reflection>"
    fact = read_fact(env).strip()
    return f"<reflection>{f'good: {fact}' if fact else 'average: I read on'}</reflection>"


def _roles_before(env: TeamEpisode, rng: np.random.Generator, place: int) -> str:
    """What stands before a turn's thought and look-up; the first turn's plan is the expert's."""
    if not env.roles:
        return ""
    text = _reflection(env)
    if _has_strayed(env):
        return f"{text}<plan>another search</plan>"
    is_last = place == len(env.question.hops) - 1
    may_suggest = is_last and place > 0 and "suggested_answer" not in env.roles
    if may_suggest and rng.random() < EARLY_PROBABILITY:
        early = env.question.hops[place - 1].titles[0]
        check = "<double_check>1</double_check><plan>one more fact</plan>"
        text += f"<suggested_answer>{early}</suggested_answer>{check}"
    return text

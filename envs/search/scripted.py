"""Scripted policies of `SearchQuestions`; the expert thinks, searches, reads and answers."""

import json
from typing import Protocol

import numpy as np

from agentrl_jax.envs.page_index import PageIndex
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.search.protocols import SearchProtocol
from agentrl_jax.envs.search.questions import Hop, Question
from agentrl_jax.envs.search.retrieved_pages import RetrievedPages
from agentrl_jax.messages import Message, ToolCall


class SearchEpisode(Protocol):
    """What the policies read of `SearchQuestions`."""

    question: Question
    protocol: SearchProtocol
    read_titles: frozenset[str]
    listed_titles: frozenset[str]
    queries: tuple[str, ...]

    @property
    def index(self) -> PageIndex | RetrievedPages: ...
    @property
    def turns_left(self) -> int: ...


def _call(env: SearchEpisode, thought: str, name: str, **arguments: str) -> Message:
    text = env.protocol.thought.replace("{}", thought)
    if env.protocol.has_roles and not env.queries:
        text += f"<plan>{len(env.question.hops)} facts, then the answer</plan>"
    return Message("assistant", text, (ToolCall("call_0", name, json.dumps(arguments)),))


def search_for(env: SearchEpisode, thought: str, query: str) -> Message:
    """A thought and a search."""
    return _call(env, thought, "search", query=query)


def next_look_up(env: SearchEpisode, hop: Hop) -> Message | None:
    """The next look-up of a hop; None: it is done, or its queries did not find it."""
    unread = [title for title in hop.titles if title not in env.read_titles]
    if not unread:
        return None
    listed = [title for title in unread if title in env.listed_titles]
    if listed and env.protocol.fetches:
        return _call(env, f"I read the page {listed[0]}.", "fetch", title=listed[0])
    for query in hop.queries:
        if query not in env.queries:
            return search_for(env, f"{read_fact(env)}I search for {query}.", query)
    return None


def read_fact(env: SearchEpisode) -> str:
    """What the last hop that is done has told."""
    facts = [h.fact for h in env.question.hops if {*h.titles} <= env.read_titles and h.fact]
    return f"{facts[-1][0].upper()}{facts[-1][1:]}. " if facts else ""


def expert_action(env: SearchEpisode, rng: np.random.Generator) -> Message | str:
    """Follows the hops; without the pages of all of them it answers "unknown"."""
    for hop in env.question.hops if env.turns_left > 1 else ():
        action = next_look_up(env, hop)
        if action is not None:
            return action
    is_known = all({*hop.titles} <= env.read_titles for hop in env.question.hops)
    answer = env.question.answers[0] if is_known else "unknown"
    return env.protocol.write_answer(f"{read_fact(env)}I can answer.", answer)


def random_action(env: SearchEpisode, rng: np.random.Generator) -> Message | str:
    """Searches for a uniform page's title, or answers with one."""
    title = env.index.pages[int(rng.integers(len(env.index.pages)))].title
    if env.turns_left > 1 and rng.random() < 0.5:
        return search_for(env, "I look around.", title)
    return env.protocol.write_answer("I guess.", title)


def give_up(env: SearchEpisode, rng: np.random.Generator) -> Message | str:
    """Ends the episode without an answer."""
    return env.protocol.write_answer("I give up.", "unknown")


SCRIPTED_POLICIES = {
    "random": random_action,
    "expert": expert_action,
    "hasty": MixturePolicy(expert_action, give_up, 0.85),
    "mixture": MixturePolicy(expert_action, random_action, 0.9),
}

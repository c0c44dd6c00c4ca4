"""`Lookup`: multi-hop questions about people (IGPO, arXiv 2510.14967; ARPO, arXiv 2507.19849)."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_bool, checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy

PERSON_NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal", "ian", "jon", "kim", "leo")
RELATIONS = ("boss", "pal", "aunt")
FIND = "find"
ANSWER_PATTERN = re.compile(r"answer((?: [a-z]{1,9}){1,12})")


def f1_score(answer: str, gold: str) -> float:
    """2 |A and G| / (|A| + |G|), with A and G the sets of words of the two texts."""
    answer_words, gold_words = set(answer.split()), set(gold.split())
    return 2 * len(answer_words & gold_words) / (len(answer_words) + len(gold_words))


def _random_action(env: "Lookup", rng: np.random.Generator) -> str:
    """Looks up or answers a uniform name."""
    verbs = (*env.tools, "answer")
    return f"{verbs[rng.integers(len(verbs))]} {env.names[rng.integers(len(env.names))]}"


def _guessing_action(env: "Lookup", rng: np.random.Generator) -> str:
    """With probability 1/2 the expert's action, else answers a uniform name not looked up yet."""
    if rng.random() < 0.5:
        return _expert_action(env, rng)
    read = {name for name, _ in env.read_facts}
    unread = [name for name in env.names if name not in read]
    return f"answer {(unread or env.names)[rng.integers(len(unread or env.names))]}"


def _expert_action(env: "Lookup", rng: np.random.Generator) -> str:
    """Looks up the names of the path in turn, then answers."""
    for name, relation in zip(env.answer_path, env.question_relations):
        if (name, relation) not in env.read_facts:
            return f"{relation if env.separate_tools else FIND} {name}"
    return f"answer {env.gold}"


class Lookup(SampledTaskEnvironment):
    """The observation is "boss of pal of ann?": look up ann, then her pal, and answer.

    "find ann" is answered by her entry, "ann boss bob pal cat" (with `ambiguous`, by that many
    other entries too, shuffled and separated by ";"), an unknown name by "nobody"; "answer bob"
    ends the episode; any other text is answered by "?". An answer earns its F1 against the right
    one over sets of words. Each relation is one cycle through all `people`, so that every entry
    rules out answers before the last one decides. `info` holds `legal`, `formatted`,
    `called_tools`, `stopped` (answered), `answer` (the words, or None) and `gold`.

    Scripted policies: `random`, `expert`, `mixture` (the expert with probability 0.8) and `guesser`
    (the expert with probability 0.5, else a uniform answer).

    Args:
        hops: relations in a question, 1 to 3.
        people: names in the table.
        relations: how many relations there are, 1 to 3.
        ambiguous: other entries that a look-up returns.
        separate_tools: each relation has a tool of its own, in place of "find": "boss ann" is
            answered by "ann boss bob".
        exact: whether the reward is 1 for exactly the right answer and else 0.
        horizon: turns before truncation.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "guesser": _guessing_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        hops: int = 2,
        people: int = 6,
        relations: int = 2,
        ambiguous: int = 0,
        separate_tools: bool = False,
        exact: bool = False,
        horizon: int = 8,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.names = PERSON_NAMES[: checked_int("people", people, 3, len(PERSON_NAMES))]
        self.relations = RELATIONS[: checked_int("relations", relations, 1, len(RELATIONS))]
        self.hops, self.exact = checked_int("hops", hops, 1, 3), checked_bool("exact", exact)
        self.ambiguous = checked_int("ambiguous", ambiguous, 0, people - 1)
        self.separate_tools = checked_bool("separate_tools", separate_tools)
        self.tools = self.relations if separate_tools else (FIND,)
        self._call_pattern = re.compile(rf"({'|'.join(self.tools)}) ([a-z]{{1,9}})")
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.rules = (
            f"Find out who is asked for, in at most {horizon} turns. {self.tools[-1]} ann shows "
            f"whom ann is tied to{'' if separate_tools else ' in every way'}; answer bob ends the "
            f"game.\nThe tools are {', '.join(self.tools)}, the people {', '.join(self.names)}."
        )
        self.relation_table: Mapping[str, Mapping[str, str]] = {}  # name -> relation -> name
        self.question_relations: tuple[str, ...] = ()  # in the order in which to follow them
        # From the name in the question to the right answer.
        self.answer_path: tuple[str, ...] = ("", "")
        # The names whose entries a look-up returns, by the index of the name looked up.
        self.lookup_results: tuple[tuple[str, ...], ...] = ()
        self.read_facts: frozenset[tuple[str, str]] = frozenset()  # (name, relation)

    @property
    def gold(self) -> str:
        return self.answer_path[-1]

    def _sample_task(self) -> None:
        circles = {}
        for relation in self.relations:
            order = [self.names[i] for i in self.np_random.permutation(len(self.names))]
            circles[relation] = dict(zip(order, [*order[1:], order[0]]))
        self.relation_table = {
            name: {relation: circle[name] for relation, circle in circles.items()}
            for name in self.names
        }
        self._sample_question()
        # No name is looked up twice; a single relation never returns to one so soon.
        while len({*self.answer_path[:-1]}) < self.hops:
            self._sample_question()
        self.lookup_results = tuple(self._sample_lookup_result(name) for name in self.names)

    def _sample_question(self) -> None:
        self.question_relations = tuple(
            self.relations[self.np_random.integers(len(self.relations))] for _ in range(self.hops)
        )
        path = [self.names[self.np_random.integers(len(self.names))]]
        for relation in self.question_relations:
            path.append(self.relation_table[path[-1]][relation])
        self.answer_path = tuple(path)

    def _sample_lookup_result(self, name: str) -> tuple[str, ...]:
        other_names = [other for other in self.names if other != name]
        returned = [
            name,
            *(
                other_names[i]
                for i in self.np_random.permutation(len(other_names))[: self.ambiguous]
            ),
        ]
        return tuple(returned[i] for i in self.np_random.permutation(len(returned)))

    def _reset_state(self) -> None:
        self.read_facts = frozenset()

    def _opening_text(self) -> str:
        return " of ".join((*reversed(self.question_relations), self.answer_path[0])) + "?"

    def _entry_text(self, name: str, relations: Sequence[str]) -> str:
        facts = (f"{relation} {self.relation_table[name][relation]}" for relation in relations)
        return " ".join((name, *facts))

    def _call_tool(self, tool: str, name: str) -> str:
        """The entries that a tool returns for a name."""
        if name not in self.names:
            return "nobody"
        relations = self.relations if tool == FIND else (tool,)
        returned = self.lookup_results[self.names.index(name)]
        self.read_facts |= {(other, relation) for other in returned for relation in relations}
        return "; ".join(self._entry_text(other, relations) for other in returned)

    def _respond(self, text: str) -> StepResult:
        call, answer = self._call_pattern.fullmatch(text), ANSWER_PATTERN.fullmatch(text)
        formatted = call is not None or answer is not None
        words = answer[1].strip() if answer else None
        info = {
            "legal": formatted,
            "formatted": formatted,
            "called_tools": [call[1]] if call else [],
            "stopped": answer is not None,
        }
        info |= {"answer": words, "gold": self.gold}
        if words is not None:
            correct = words == self.gold
            return StepResult(
                "Done.",
                {"outcome": float(correct) if self.exact else f1_score(words, self.gold)},
                info,
                correct,
            )
        entries = self._call_tool(call[1], call[2]) if call else "?"
        return StepResult(entries, {"outcome": 0.0}, info)

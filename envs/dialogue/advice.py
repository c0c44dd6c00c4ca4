"""`Advice`: find out what a user would like before you say what suits them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import Probe, Reply, amount, whole

TOPICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "food": ("rice", "soup", "fish", "cake"),
        "place": ("hill", "lake", "town", "wood"),
        "month": ("april", "may", "june", "july"),
        "way": ("bus", "boat", "bike", "foot"),
        "bed": ("tent", "hut", "inn", "van"),
    }
)
LONGEST = 200  # letters of an advice


def advised(values: Sequence[str]) -> str:
    """The text that advises these values, one a topic."""
    return " ".join(["go", *values])


def _random(env: Environment, rng: np.random.Generator) -> str:
    """Asks for any topic, or advises anything, each half of the time."""
    assert isinstance(env, Advice)
    if rng.random() < 0.5:
        return f"ask {env.topics[rng.integers(len(env.topics))]}"
    return advised([env.values_of(topic)[rng.integers(env.values)] for topic in env.topics])


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Asks while that pays and a turn is left for the advice, then advises what it was told; it sees no more than the agent does."""
    assert isinstance(env, Advice)
    unknown = [topic for topic in env.topics if topic not in env.told]
    if unknown and env.right is None and env.turns + 1 < env.horizon and env.gain > env.cost:
        return f"ask {unknown[0]}"
    return _greedy(env, rng)


def _greedy(env: Environment, rng: np.random.Generator) -> str:
    """Takes what a turn pays at once: it advises, and guesses what it was not told."""
    assert isinstance(env, Advice)
    return advised([env.wish[topic] if topic in env.told else env.values_of(topic)[0] for topic in env.topics])


class Advice(Probe):
    """A user wants to go somewhere and has a wish on each of `topics` topics, one of `values` values, all equally likely.

    The dialogue has exactly `horizon` turns (one more than topics unless given); the user says how many are left, as "trip? 4". "ask
    food" is answered by the wish, "rice 3", and costs `cost`. "go rice lake may" is the advice: the user takes the first that is given,
    it earns the share of topics whose wish it names, and afterwards questions are refused ("no 2"), at the same cost. Anything else is
    answered by "?", and costs the turn. So advice pays at any time, and most at the end: who advises at once earns 1 / values on
    average, who asks first 1 - cost x topics. The return of a dialogue cut anywhere is share of the advice - cost x questions.

    `info` says `legal`, and of the dialogue so far: `questions`, `facts` (wishes told) and `right` (topics, None before the advice). It is
    a success if all are right.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "mixture": Mixed(_expert, _random, 0.5), "greedy": _greedy, "expert": _expert}
    )

    def __init__(
        self, topics: int = 3, values: int = 3, horizon: int | None = None, cost: float = 0.02, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self.topics = tuple(TOPICS)[: whole("topics", topics, 1, len(TOPICS))]
        self.values = whole("values", values, 2, 4)
        self.horizon = whole("horizon", topics + 1 if horizon is None else horizon, 1, 100)
        self.cost = amount("cost", cost)
        self.reward_bounds = (-self.cost, 1.0)
        choices = "; ".join(f"{topic}: {', '.join(self.values_of(topic))}" for topic in self.topics)
        example = advised([self.values_of(topic)[0] for topic in self.topics])
        self.rules = (
            f"A user wants to travel: find out how they like it, and advise them, in {self.horizon} turns. {choices}.\n"
            f"ask {self.topics[0]} asks for a wish and costs {self.cost:g}. {example} is an advice: the first one counts, by the share of "
            "wishes that it meets, and afterwards no question is answered."
        )
        self.drawn: tuple[int, ...] = (0,) * topics
        self.told: frozenset[str] = frozenset()
        self.questions = 0
        self.right: int | None = None

    def values_of(self, topic: str) -> tuple[str, ...]:
        """What may be wished for."""
        return TOPICS[topic][: self.values]

    @property
    def wish(self) -> Mapping[str, str]:
        """What the user would like, by topic."""
        return {topic: self.values_of(topic)[i] for topic, i in zip(self.topics, self.drawn)}

    @property
    def gain(self) -> float:
        """What being told one wish adds to the expected share of the advice."""
        return (1 - 1 / self.values) / len(self.topics)

    @property
    def optimum(self) -> float:
        """The mean return of the best player: questions while they pay and turns are left, then the advice."""
        asked = min(self.horizon - 1, len(self.topics)) if self.gain > self.cost else 0
        return 1 / self.values + asked * (self.gain - self.cost)

    def _draw(self) -> None:
        self.drawn = tuple(map(int, self.np_random.integers(self.values, size=len(self.topics))))

    def _begin(self) -> None:
        self.told, self.questions, self.right = frozenset(), 0, None

    def _question(self) -> str:
        return f"trip? {self.horizon}"

    def _advice(self, text: str) -> Mapping[str, str] | None:
        """The value that a text advises of each topic; None where it is no advice."""
        word, *values = text[:LONGEST].split(" ")
        known = {value: topic for topic in self.topics for value in self.values_of(topic)}
        choice = {known[value]: value for value in values if value in known}
        return choice if word == "go" and len(text) < LONGEST and 0 < len(values) == len(choice) else None

    def _reply(self, text: str) -> Reply:
        topic, choice = text.removeprefix("ask "), self._advice(text)
        asked = text.startswith("ask ") and topic in self.topics
        earned, said = 0.0, "?"
        if asked:
            self.questions += 1
            said = "no"
            if self.right is None:
                self.told, said = self.told | {topic}, self.wish[topic]
        elif choice is not None:
            said = "thanks"
            if self.right is None:
                self.right = sum(self.wish[topic] == value for topic, value in choice.items())
                earned = self.right / len(self.topics)
        left = self.horizon - self.turns
        facts = {"legal": asked or choice is not None, "questions": self.questions, "facts": len(self.told), "right": self.right}
        rewards = {"advice": earned, "questions": -self.cost if asked else 0.0}
        return Reply(f"{said} {left}", rewards, facts, None if left else self.right == len(self.topics))

"""`Advice`: find out what a user would like before advising them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_fraction, checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy

TOPICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "food": ("rice", "soup", "fish", "cake"),
        "place": ("hill", "lake", "town", "wood"),
        "month": ("april", "may", "june", "july"),
        "way": ("bus", "boat", "bike", "foot"),
        "bed": ("tent", "hut", "inn", "van"),
    }
)
MAX_ADVICE_LENGTH = 200  # characters


def format_advice(values: Sequence[str]) -> str:
    """The action that advises these values, one per topic."""
    return " ".join(["go", *values])


def _random_action(env: "Advice", rng: np.random.Generator) -> str:
    """Asks about a uniform topic or advises uniform values, with equal probability."""
    if rng.random() < 0.5:
        return f"ask {env.topics[rng.integers(len(env.topics))]}"
    return format_advice([env.values_of(topic)[rng.integers(env.values)] for topic in env.topics])


def _expert_action(env: "Advice", rng: np.random.Generator) -> str:
    """Asks while that pays and a turn is left for the advice, then advises.

    It reads no hidden state.
    """
    unknown = [topic for topic in env.topics if topic not in env.known_topics]
    if (
        unknown
        and env.num_correct is None
        and env.turns + 1 < env.horizon
        and env.expected_gain_per_question > env.cost
    ):
        return f"ask {unknown[0]}"
    return _greedy_action(env, rng)


def _greedy_action(env: "Advice", rng: np.random.Generator) -> str:
    """Maximizes the immediate reward: advises at once, guessing the unknown wishes."""
    return format_advice(
        [
            env.wishes[topic] if topic in env.known_topics else env.values_of(topic)[0]
            for topic in env.topics
        ]
    )


class Advice(SampledTaskEnvironment):
    """A user has a wish on each of `topics` topics, one of `values` values, all equally likely.

    The dialogue has exactly `horizon` turns; each observation ends in the number of turns left, as
    "trip? 4". "ask food" is answered by the wish, "rice 3", and costs `cost`. "go rice lake may" is
    the advice: the first one counts, and earns the fraction of topics whose wish it names; after
    it, questions are refused ("no 2") at the same cost. Any other text is answered by "?" and costs
    the turn. Advice at once returns 1 / values on average, asking about everything first returns 1
    - cost x topics. The return of a dialogue cut at any turn is (fraction - cost x questions).
    `info` holds `legal` and, so far: `questions`, `facts` (known wishes) and `right` (topics; None
    before the advice). The episode is a success if all are right.

    Scripted policies: `random`, `greedy` (advises at once), `expert` (optimal) and `mixture` (the
    expert with probability 0.5).

    Args:
        topics: how many topics there are.
        values: possible wishes per topic, 2 to 4.
        horizon: turns of the dialogue; one more than topics by default.
        cost: price of a question, in [0, 1].
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.5),
            "greedy": _greedy_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        topics: int = 3,
        values: int = 3,
        horizon: int | None = None,
        cost: float = 0.02,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.topics = tuple(TOPICS)[: checked_int("topics", topics, 1, len(TOPICS))]
        self.values = checked_int("values", values, 2, 4)
        self.horizon = checked_int("horizon", topics + 1 if horizon is None else horizon, 1, 100)
        self.cost = checked_fraction("cost", cost)
        self.reward_bounds = (-self.cost, 1.0)
        choices = "; ".join(f"{topic}: {', '.join(self.values_of(topic))}" for topic in self.topics)
        example = format_advice([self.values_of(topic)[0] for topic in self.topics])
        self.rules = (
            "A user wants to travel: find out how they like it, and advise them, in "
            f"{self.horizon} turns. {choices}.\n"
            f"ask {self.topics[0]} asks for a wish and costs {self.cost:g}. {example} is an "
            "advice: the first one counts, by the share of "
            "wishes that it meets, and afterwards no question is answered."
        )
        self.wish_indices: tuple[int, ...] = (0,) * topics
        self.known_topics: frozenset[str] = frozenset()
        self.num_questions = 0
        self.num_correct: int | None = None

    def values_of(self, topic: str) -> tuple[str, ...]:
        """The possible wishes on a topic."""
        return TOPICS[topic][: self.values]

    @property
    def wishes(self) -> Mapping[str, str]:
        """What the user would like, by topic."""
        return {topic: self.values_of(topic)[i] for topic, i in zip(self.topics, self.wish_indices)}

    @property
    def expected_gain_per_question(self) -> float:
        """What knowing one wish adds to the expected reward of the advice."""
        return (1 - 1 / self.values) / len(self.topics)

    @property
    def optimal_return(self) -> float:
        """The expected return of the optimal policy: questions while they pay, then the advice."""
        num_questions = (
            min(self.horizon - 1, len(self.topics))
            if self.expected_gain_per_question > self.cost
            else 0
        )
        return 1 / self.values + num_questions * (self.expected_gain_per_question - self.cost)

    def _sample_task(self) -> None:
        self.wish_indices = tuple(
            map(int, self.np_random.integers(self.values, size=len(self.topics)))
        )

    def _reset_state(self) -> None:
        self.known_topics, self.num_questions, self.num_correct = frozenset(), 0, None

    def _opening_text(self) -> str:
        return f"trip? {self.horizon}"

    def _parse_advice(self, text: str) -> Mapping[str, str] | None:
        """The value that a text advises for each topic; None where it is no advice."""
        word, *values = text[:MAX_ADVICE_LENGTH].split(" ")
        known = {value: topic for topic in self.topics for value in self.values_of(topic)}
        choice = {known[value]: value for value in values if value in known}
        return (
            choice
            if word == "go" and len(text) < MAX_ADVICE_LENGTH and 0 < len(values) == len(choice)
            else None
        )

    def _respond(self, text: str) -> StepResult:
        topic, choice = text.removeprefix("ask "), self._parse_advice(text)
        is_question = text.startswith("ask ") and topic in self.topics
        advice_reward, answer = 0.0, "?"
        if is_question:
            self.num_questions += 1
            answer = "no"
            if self.num_correct is None:
                self.known_topics, answer = self.known_topics | {topic}, self.wishes[topic]
        elif choice is not None:
            answer = "thanks"
            if self.num_correct is None:
                self.num_correct = sum(
                    self.wishes[topic] == value for topic, value in choice.items()
                )
                advice_reward = self.num_correct / len(self.topics)
        turns_left = self.horizon - self.turns
        info = {
            "legal": is_question or choice is not None,
            "questions": self.num_questions,
            "facts": len(self.known_topics),
            "right": self.num_correct,
        }
        rewards = {"advice": advice_reward, "questions": -self.cost if is_question else 0.0}
        return StepResult(
            f"{answer} {turns_left}",
            rewards,
            info,
            None if turns_left else self.num_correct == len(self.topics),
        )

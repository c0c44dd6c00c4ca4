"""`InstructionPopulation`: instructions drawn by their returns, pruned by halves and extended.

INSPO (arXiv 2512.01945).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.rollout.strategy import RolloutPiece


@dataclass
class InstructionMember:
    """An instruction, and the returns under it."""

    text: str
    total: float = 0.0
    episodes: int = 0
    alive: bool = True

    @property
    def mean(self) -> float | None:
        return self.total / self.episodes if self.episodes else None


@dataclass
class InstructionPopulation(RolloutPiece):
    """Living member j is drawn with P_j = softmax(w / temperature)_j, w_j its mean return.

    The mean is over all episodes under it; a member without episodes has the weight of the best, so
    it is tried. At temperature 0 the best is drawn, or one of several best. The paper's number of
    instructions, its temperature and its rule for weights are not published; a running mean is the
    simplest reading.
    """

    instructions: Sequence[str]
    temperature: float

    def __post_init__(self) -> None:
        if (
            not self.instructions
            or len({*self.instructions}) < len(self.instructions)
            or self.temperature < 0
        ):
            raise UserError(
                f"a population needs different instructions and a temperature of at least 0: {self}"
            )
        self.members = [InstructionMember(text) for text in self.instructions]

    @property
    def living_ids(self) -> list[int]:
        """The ids of members that may be drawn. An id always names the same instruction."""
        return [j for j, member in enumerate(self.members) if member.alive]

    def weights(self) -> np.ndarray:
        """w of the living members, float64."""
        means = [self.members[j].mean for j in self.living_ids]
        best = max((mean for mean in means if mean is not None), default=0.0)
        return np.array([best if mean is None else mean for mean in means])

    def probabilities(self) -> np.ndarray:
        """P of the living members, float64; they sum to 1."""
        logits = self.weights() - self.weights().max()
        with np.errstate(over="ignore"):  # to -inf, whose probability is 0
            unnormalized = (
                np.exp(logits / self.temperature)
                if self.temperature
                else (logits == 0).astype(np.float64)
            )
        return unnormalized / unnormalized.sum()

    def draw(self, rng: np.random.Generator) -> int:
        """Draw the id of a living member."""
        return int(rng.choice(self.living_ids, p=self.probabilities()))

    def best(self) -> int:
        """The living member with the highest mean return, of equals the oldest.

        One without episodes only where no member has any.
        """

        def mean_return(j: int) -> float:
            mean = self.members[j].mean
            return -np.inf if mean is None else mean

        return max(self.living_ids, key=mean_return)

    def add_returns(self, instruction_id: int, total_return: float, episodes: int) -> None:
        """Add the returns of some episodes under an instruction."""
        member = self.members[instruction_id]
        member.total, member.episodes = member.total + total_return, member.episodes + episodes

    def prune(self) -> list[int]:
        """Prune the half of the living members, rounded down, with the lowest weights.

        Of equals the newer is pruned; members without episodes stay. Returns the pruned ids.
        """
        order = sorted(zip(self.weights(), self.living_ids), key=lambda pair: (pair[0], -pair[1]))
        lowest = [j for _, j in order[: len(order) // 2] if self.members[j].episodes]
        for j in lowest:
            self.members[j].alive = False
        return lowest

    def filter_new(self, texts: Iterable[Any], max_count: int, max_length: int) -> list[str]:
        """The first `max_count` new proposals: texts that are not empty, long or known."""
        known = {member.text for member in self.members}
        new_texts: list[str] = []
        for text in texts:
            clean = (
                text.encode("utf-8", "replace").decode().strip() if isinstance(text, str) else ""
            )
            if clean and len(clean) <= max_length and clean not in known:
                known.add(clean)
                new_texts.append(clean)
        return new_texts[:max_count]

    def admit(self, trials: Iterable[tuple[str, float, int]], max_count: int) -> list[int]:
        """Add the best of (instruction, total return, episodes), at most `max_count`.

        None whose mean return is below those of all living members. Returns the new ids.
        """
        candidates = [
            InstructionMember(text, total, episodes) for text, total, episodes in trials if episodes
        ]
        lowest = min(self.weights())
        eligible = [m for m in candidates if m.mean is not None and m.mean >= lowest]
        admitted = sorted(eligible, key=lambda m: -(m.mean or 0.0))[:max_count]
        self.members += admitted
        return list(range(len(self.members) - len(admitted), len(self.members)))

    def state(self) -> list[dict[str, Any]]:
        return [vars(member).copy() for member in self.members]

    def load(self, state: Sequence[Mapping[str, Any]]) -> None:
        self.members = [InstructionMember(**member) for member in state]

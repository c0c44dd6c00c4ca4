"""`Population`: instructions that are drawn by what they earned, pruned by halves and joined by new ones (INSPO, arXiv 2512.01945)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError


@dataclass
class Member:
    """An instruction, and what was earned under it."""

    text: str
    total: float = 0.0
    episodes: int = 0
    alive: bool = True

    @property
    def mean(self) -> float | None:
        return self.total / self.episodes if self.episodes else None


@dataclass
class Population:
    """Living member j is drawn with P_j = softmax(w / temperature)_j; w_j is the mean of all returns under it.

    One that was never played counts as much as the best, so it is tried; at temperature 0 the best is drawn, or one of several best.
    The paper's number of instructions, its temperature and its rule for weights are not published; a running mean is the least reading.
    """

    instructions: Sequence[str]
    temperature: float

    def __post_init__(self) -> None:
        if not self.instructions or len({*self.instructions}) < len(self.instructions) or self.temperature < 0:
            raise UserError(f"a population needs different instructions and a temperature of at least 0: {self}")
        self.members = [Member(text) for text in self.instructions]

    @property
    def living(self) -> list[int]:
        """The numbers of those that may be drawn. A number always names the same instruction."""
        return [j for j, member in enumerate(self.members) if member.alive]

    def weights(self) -> np.ndarray:
        """w of the living, float64."""
        means = [self.members[j].mean for j in self.living]
        best = max((mean for mean in means if mean is not None), default=0.0)
        return np.array([best if mean is None else mean for mean in means])

    def probabilities(self) -> np.ndarray:
        """P of the living, float64; they sum to 1."""
        above = self.weights() - self.weights().max()
        with np.errstate(over="ignore"):  # to -inf, whose share is 0
            shares = np.exp(above / self.temperature) if self.temperature else (above == 0).astype(np.float64)
        return shares / shares.sum()

    def draw(self, rng: np.random.Generator) -> int:
        """The number of a living member."""
        return int(rng.choice(self.living, p=self.probabilities()))

    def best(self) -> int:
        """The living member whose mean is highest, of equals the oldest; one that was never played only where none was."""

        def mean(j: int) -> float:
            found = self.members[j].mean
            return -np.inf if found is None else found

        return max(self.living, key=mean)

    def earned(self, number: int, total: float, episodes: int) -> None:
        """So many episodes under this instruction earned so much in all."""
        member = self.members[number]
        member.total, member.episodes = member.total + total, member.episodes + episodes

    def prune(self) -> list[int]:
        """Take out the half of the living, rounded down, that weighs least, of equals the newer; those never played stay."""
        order = sorted(zip(self.weights(), self.living), key=lambda pair: (pair[0], -pair[1]))
        lowest = [j for _, j in order[: len(order) // 2] if self.members[j].episodes]
        for j in lowest:
            self.members[j].alive = False
        return lowest

    def fresh(self, texts: Iterable[Any], count: int, longest: int) -> list[str]:
        """The first `count` proposals that are something new: no text, an empty, an overlong or a known one is left out."""
        known, found = {member.text for member in self.members}, []
        for text in texts:
            clean = text.encode("utf-8", "replace").decode().strip() if isinstance(text, str) else ""
            if clean and len(clean) <= longest and clean not in known:
                known.add(clean)
                found.append(clean)
        return found[:count]

    def admit(self, trials: Iterable[tuple[str, float, int]], places: int) -> list[int]:
        """The best of (instruction, total, episodes), as many as there are places; none that earned less than all of the living."""
        tried = [Member(text, total, episodes) for text, total, episodes in trials if episodes]
        least = min(self.weights())
        good = sorted((m for m in tried if m.mean is not None and m.mean >= least), key=lambda m: -(m.mean or 0.0))
        entered = good[:places]
        self.members += entered
        return list(range(len(self.members) - len(entered), len(self.members)))

    def state(self) -> list[dict[str, Any]]:
        return [vars(member).copy() for member in self.members]

    def load(self, state: Sequence[Mapping[str, Any]]) -> None:
        self.members = [Member(**member) for member in state]

"""`CountSquares`: a picture of colored squares, of which those of one color are counted."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.images.loading import image_part
from agentrl_jax.messages import Message, TextPart

COLORS: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {"red": (220, 40, 40), "blue": (40, 80, 220), "green": (40, 180, 70), "gold": (230, 190, 40)}
)
BACKGROUND = 235
NUMBER_PATTERN = re.compile(r"[0-9]{1,3}")


def _random_action(env: "CountSquares", rng: np.random.Generator) -> str:
    """A uniform number of squares."""
    return str(rng.integers(env.cells**2 + 1))


def _expert_action(env: "CountSquares", rng: np.random.Generator) -> str:
    return str(env.solution)


def _near_miss_action(env: "CountSquares", rng: np.random.Generator) -> str:
    """Off by one."""
    return str(max(env.solution + (1, -1)[rng.integers(2)], 0))


class CountSquares(SampledTaskEnvironment):
    """The observation is a picture and "How many red squares?", the action a number; a right one
    earns 1 and ends the episode, as any other answer does.

    Each cell of the picture is empty with probability .4, or holds a square of a random color;
    which color is asked for is random too. `info` holds `formatted` and `answer` ("3", or None).

    Scripted policies: `random` is uniform, `expert` is right, `mixture` is the expert with
    probability 0.6 and else off by one.

    Args:
        cells: per side of the picture.
        colors: how many of red, blue, green and gold there are.
        cell_pixels: pixels per side of a cell.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _near_miss_action, 0.6),
            "expert": _expert_action,
        }
    )
    horizon = 1

    def __init__(
        self,
        cells: int = 3,
        colors: int = 2,
        cell_pixels: int = 8,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.cells = checked_int("cells", cells, 1, 16)
        self.colors = checked_int("colors", colors, 1, len(COLORS))
        self.cell_pixels = checked_int("cell_pixels", cell_pixels, 4, 64)
        self.rules = (
            "Write how many squares of the color that is asked for the picture shows. You have one "
            "attempt."
        )
        self.squares = np.full((cells, cells), -1)  # the index of a color; -1: empty
        self.color = 0

    @property
    def solution(self) -> int:
        return int((self.squares == self.color).sum())

    def picture(self) -> np.ndarray:
        """The pixels, uint8 [height, width, 3]; a square leaves a border of its cell free."""
        palette = np.array([*COLORS.values(), (BACKGROUND,) * 3], np.uint8)
        pixels = np.full((self.cells, self.cell_pixels) * 2 + (3,), BACKGROUND, np.uint8)
        inside = slice(1, self.cell_pixels - 1)
        pixels[:, inside, :, inside] = palette[self.squares][:, :, None, None].swapaxes(1, 2)
        side = self.cells * self.cell_pixels
        return pixels.reshape(side, side, 3)

    def _sample_task(self) -> None:
        shape = (self.cells, self.cells)
        is_empty = self.np_random.random(shape) < 0.4
        self.squares = np.where(is_empty, -1, self.np_random.integers(self.colors, size=shape))
        self.color = int(self.np_random.integers(self.colors))

    def _reset_state(self) -> None: ...

    def _opening_text(self) -> str:
        return f"How many {list(COLORS)[self.color]} squares?"

    def _opening_message(self) -> Message:
        return Message("user", (image_part(self.picture()), TextPart(f"{self._opening_text()}\n")))

    def _respond(self, text: str) -> StepResult:
        answer = str(int(text)) if NUMBER_PATTERN.fullmatch(text) else None
        is_right = answer == str(self.solution)
        info = {"formatted": answer is not None, "answer": answer}
        rewards = {"outcome": float(is_right)}
        return StepResult("Correct." if is_right else "Wrong.", rewards, info, is_right)

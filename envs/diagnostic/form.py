"""`Form`: values on screens that are gone when a form asks for them (UI-S1, arXiv 2509.11543)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy

FIELDS = "abcdefgh"
BUTTONS = "wxyz"
THOUGHT_END_MARKER = ";"


def action_type(action: str) -> str | None:
    """ "press" or "type"; None: not an action."""
    if len(action) != 1:
        return None
    return "press" if action in BUTTONS else "type" if action in "0123456789" else None


def _random_action(env: "Form", rng: np.random.Generator) -> str:
    """A uniform button or digit, whichever the screen takes."""
    return str(rng.integers(10)) if env.requested_field else BUTTONS[rng.integers(len(BUTTONS))]


def _expert_action(env: "Form", rng: np.random.Generator) -> str:
    return env.correct_action


PRESS_POLICY = MixturePolicy(_expert_action, _random_action, 0.6)


def _note_taking_action(env: "Form", rng: np.random.Generator) -> str:
    """Notes each value, and repeats it before it is typed."""
    return f"{env.note}{THOUGHT_END_MARKER}{env.correct_action}"


def _forgetful_action(env: "Form", rng: np.random.Generator) -> str:
    """Notes 6 of 10 values and guesses the others; presses 4 of 10 buttons at random."""
    field = env.requested_field
    knows = field in env.noted if field else rng.random() < 0.6
    act = PRESS_POLICY if not field else _expert_action if knows else _random_action
    return f"{env.note if knows else env.note[:1]}{THOUGHT_END_MARKER}{act(env, rng)}"


class Form(SampledTaskEnvironment):
    """Screens show values ("b=4 7"), then a form asks for each ("b?"); "start 2" comes first.

    On a screen a button is pressed, number (digit mod 4) of w, x, y, z: "start 2" asks for "y",
    "b=4 7" for "z". A wrong button changes nothing and costs a turn. On the form the value is
    typed, "4"; a wrong one ends the episode. The last right value ends it with reward 1; every
    other turn earns 0. A text up to its last ";" is a thought, which changes nothing: where old
    observations are hidden from the policy (`ObservationPlaceholders`), values that it writes
    there are all that it keeps. `info` holds `noted`, the fields whose value has been written in a
    thought so far, as "b4".

    Scripted policies: `random`, `expert` (right without a thought), `note_taker` (right, and notes
    each value), `mixture` (notes 6 of 10 values and guesses the others, and presses 4 of 10 buttons
    at random).

    Args:
        fields: values that are shown and asked for, in another order.
        horizon: turns before truncation; by default one more than the expert takes.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": _forgetful_action,
            "note_taker": _note_taking_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self, fields: int = 3, horizon: int | None = None, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        number = checked_int("fields", fields, 1, len(FIELDS))
        self.horizon = checked_int(
            "horizon", 2 * number + 2 if horizon is None else horizon, 1, 1000
        )
        self.rules = (
            f"Press the button whose number, counted from 0 among {BUTTONS}, is the digit at the "
            f"end of the screen mod {len(BUTTONS)}. Screens such as b=4 7 show values. Then a form "
            "asks for each, as b?: type it. Before an action you may write a thought and "
            f"{THOUGHT_END_MARKER}"
        )
        self.values: tuple[int, ...] = (0,) * number
        self.digits: tuple[int, ...] = (0,) * (number + 1)
        self.order: tuple[int, ...] = tuple(range(number))
        self.position = 0  # screens passed and values typed
        self.noted = ""  # the fields, each once

    @property
    def requested_field(self) -> str:
        """The field that the form asks for; empty on the screens before it."""
        number = self.position - len(self.digits)
        return FIELDS[self.order[number]] if 0 <= number < len(self.order) else ""

    @property
    def note(self) -> str:
        """The field and the value that are shown or asked for, as "b4"; "-" at the start."""
        field = self.requested_field or FIELDS[self.position - 1]
        return f"{field}{self.values[FIELDS.index(field)]}" if self.position else "-"

    @property
    def correct_action(self) -> str:
        if self.requested_field:
            return str(self.values[FIELDS.index(self.requested_field)])
        return BUTTONS[self.digits[self.position] % len(BUTTONS)]

    def _sample_task(self) -> None:
        number = len(self.values)
        self.values = tuple(map(int, self.np_random.integers(10, size=number)))
        self.digits = tuple(map(int, self.np_random.integers(10, size=number + 1)))
        self.order = tuple(map(int, self.np_random.permutation(number)))

    def _reset_state(self) -> None:
        self.position, self.noted = 0, ""

    def _opening_text(self) -> str:
        if self.position == len(self.digits) + len(self.order):
            return "Done."
        if self.requested_field:
            return f"{self.requested_field}?"
        screen = f"{FIELDS[self.position - 1]}={self.note[1:]}" if self.position else "start"
        return f"{screen} {self.digits[self.position]}"

    def _respond(self, text: str) -> StepResult:
        thought, _, action = text.rpartition(THOUGHT_END_MARKER)
        action, asks = action.strip(), bool(self.requested_field)
        self._remember(thought)
        legal = action_type(action) == ("type" if asks else "press")
        correct = action == self.correct_action
        self.position += correct
        over = self.position == len(self.digits) + len(self.order)
        return StepResult(
            self._opening_text(),
            {"outcome": float(over)},
            {"noted": self.noted},
            over if over or (asks and legal and not correct) else None,
        )

    def _remember(self, thought: str) -> None:
        """Count the values that a thought holds."""
        for field, value in zip(FIELDS, self.values):
            if field not in self.noted and f"{field}{value}" in thought:
                self.noted += field

"""`Battery`: makes the attacks of a section, and collects what came of each."""

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MAX_TEXT = 300  # characters of what happened


@dataclass(frozen=True)
class Outcome:
    """What came of an attack."""

    section: str
    attack: str
    expected: str
    happened: str
    ok: bool


@dataclass
class Battery:
    """The attacks of one section; `folder` is theirs, `match` selects by name."""

    section: str
    folder: Path
    random: random.Random
    match: str = ""
    outcomes: list[Outcome] = field(default_factory=list)

    def attack(
        self, name: str, expected: str, make: Callable[[], tuple[bool, str]], quiet: bool = False
    ) -> None:
        """Make an attack and note its outcome.

        Args:
            name: of the attack.
            expected: what should happen.
            make: returns whether that happened, and what did; what it raises is a failure.
            quiet: print the outcome only where it is a failure.
        """
        if self.match not in name:
            return
        try:
            ok, happened = make()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            ok, happened = False, f"{type(error).__name__} at {where}: {error}"
        text = " ".join(happened.split())[:MAX_TEXT].replace("|", "/")
        self.outcomes.append(Outcome(self.section, name, expected, text, ok))
        if not (quiet and ok):
            print(f"{'ok  ' if ok else 'FAIL'} {self.section}: {name}: {text}", flush=True)

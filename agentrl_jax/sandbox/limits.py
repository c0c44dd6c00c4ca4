"""`SandboxLimits`: what a snippet may use; `Limit`: which of them ended it."""

import math
import struct
from dataclasses import astuple, dataclass
from typing import Literal

from agentrl_jax.errors import UserError

Limit = Literal["time", "cpu", "memory", "disk", "output", "processes", "files"]
_LAYOUT = struct.Struct("=ddqqqq?q")


@dataclass(frozen=True)
class SandboxLimits:
    """The limits of one snippet, or of each call of a session.

    Raises:
        UserError: a limit is not positive.
    """

    seconds: float = 5.0  # of time
    cpu_seconds: float = 10.0  # of all threads of a process
    memory_mb: int = 512  # that a process may add to the interpreter's own
    disk_mb: int = 16  # of the folder that it may write to, and of one file
    output_kb: int = 64  # of stdout and stderr together
    tasks: int = 16  # threads and processes at once
    subprocesses: bool = False  # whether it may start processes
    open_files: int = 64

    def __post_init__(self) -> None:
        values = astuple(self)
        numbers = [value for value in values if not isinstance(value, bool)]
        if not all(math.isfinite(number) and 0 < number <= 1e9 for number in numbers):
            raise UserError(f"the sandbox's limits must be from above 0 to 1e9, not {values}")
        if self.open_files < 16:
            raise UserError("the sandbox's limit of open files must be at least 16")

    def pack(self) -> bytes:
        return _LAYOUT.pack(*astuple(self))

    @staticmethod
    def unpack(data: bytes) -> "SandboxLimits":
        return SandboxLimits(*_LAYOUT.unpack(data))


LIMITS_BYTES = _LAYOUT.size

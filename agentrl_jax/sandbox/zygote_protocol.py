"""What a host process and its zygote send each other.

Host to zygote, as packets of a Unix socket with descriptors beside them: a start. Zygote to host,
through the socket of one snippet that came with its start, its leash: the process id and the end;
the process itself says that it started, and closes its copy before any code of the snippet runs.
When the host closes a leash the snippet is killed; a byte from the host interrupts it.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from agentrl_jax.sandbox.landlock import FileRule
from agentrl_jax.sandbox.limits import LIMITS_BYTES, SandboxLimits

MAX_PACKET = 4096
INTERRUPT = b"i"
# Descriptors of a start: request, stdin, stdout, stderr, leash; of a session: its two pipes too.
PROGRAM_DESCRIPTORS, SESSION_DESCRIPTORS = 5, 7
_DEADLINE = struct.Struct("=d")


def pack_start(limits: SandboxLimits, seconds: float) -> bytes:
    """A start; `seconds`: after which it is killed, 0: never."""
    return _DEADLINE.pack(seconds) + limits.pack()


def unpack_start(data: bytes) -> tuple[SandboxLimits, float]:
    limits, rest = data[_DEADLINE.size :], data[: _DEADLINE.size]
    if len(limits) != LIMITS_BYTES:
        raise ValueError("a start of another length")
    return SandboxLimits.unpack(limits), _DEADLINE.unpack(rest)[0]


@dataclass(frozen=True)
class SnippetEnd:
    """How the process of a snippet ended."""

    status: int  # as `os.waitpid` gives it
    cpu_seconds: float = 0.0
    is_late: bool = False  # the zygote killed it at its deadline
    has_filled_disk: bool = False  # the zygote killed it for the size of its folder
    failure: str = ""  # it could not be confined, and no code ran

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()[:MAX_PACKET]

    @staticmethod
    def decode(data: bytes) -> "SnippetEnd":
        return SnippetEnd(**json.loads(data))


@dataclass(frozen=True)
class ZygoteConfig:
    """What a zygote is started with."""

    search_path: Sequence[str]  # of modules
    packages: Mapping[str, str]  # beyond it, by name: the folders that they are in
    modules: Sequence[str]  # imported before the first snippet
    rules: Sequence[FileRule]  # files that snippets may use
    launcher: Sequence[str] = ()  # of bubblewrap; empty: snippets run in forks of the zygote
    own_files: Sequence[str] = ()  # of this package, that the launcher shows
    protections: Sequence[bool] = ()  # of `Protections`, in order; empty: all
    isolation: Sequence[bool] | None = None  # of `Isolation`; None: the best
    max_abi: int = 99  # of Landlock; the kernel's, where that is less

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> "ZygoteConfig":
        fields = json.loads(data)
        rules = tuple(FileRule(*rule) for rule in fields.pop("rules"))
        return ZygoteConfig(rules=rules, **fields)

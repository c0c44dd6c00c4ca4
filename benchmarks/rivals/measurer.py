"""The rival's end of the pipe: one JSON line when it is ready, then one for each line that comes
in.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

FAMILIES = (
    "qwen2",
    "qwen3",
)  # biases on queries, keys and values with a head of its own; norms of query and key heads, tied
SHAPE = {
    "layers": 4,
    "width": 128,
    "hidden": 512,
    "heads": 4,
    "kv_heads": 2,
    "head_size": 32,
    "vocab": 1024,
}


def parse_flags(
    description: str | None, modes: Sequence[str] = (), **sizes: int
) -> argparse.Namespace:
    """The model's shape, a mode where there are several, and whatever `sizes` the script has, from
    the command line.
    """
    parser = argparse.ArgumentParser(description=description)
    if modes:
        parser.add_argument("--mode", choices=modes, default=modes[0])
    parser.add_argument("--family", choices=FAMILIES, default="qwen3")
    for name, value in (SHAPE | sizes).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


class Pipe:
    """Standard input and output; what libraries print goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, message: dict[str, Any]) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def send_ready(self, packages: tuple[str, ...], **fields: Any) -> None:
        """Say that the next line may come: versions, parameters, and what each repeat will do."""
        self.send({"versions": {name: version(name) for name in packages}, **fields})

    def wait_for_request(self) -> bool:
        """Wait for a line; false at the end of the input."""
        return bool(sys.stdin.readline())

    def serve(self, repeat: Callable[[], dict[str, Any]]) -> None:
        """One repeat a line, with its `seconds` unless it says them itself."""
        while self.wait_for_request():
            began = time.perf_counter()
            figures = repeat()
            self.send({"seconds": time.perf_counter() - began} | figures)

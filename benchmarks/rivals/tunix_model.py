"""What both Tunix measurers share: a tiny random Qwen, a byte tokenizer, and a count of compilation
time.
"""

import argparse
import os
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.monitoring
from flax import nnx
from tunix.models.qwen2 import model as qwen2
from tunix.models.qwen3 import model as qwen3


class Bytes:
    """Byte b is id 3 + b."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return [3 + byte for byte in text.encode()]

    def decode(self, ids: Any, **_: Any) -> str:
        return bytes(max(int(i) - 3, 0) % 256 for i in ids).decode("latin1")

    def bos_id(self) -> int:
        return 1

    def eos_id(self) -> int:
        return 2

    def pad_id(self) -> int:
        return 0


def build_model(args: argparse.Namespace, seed: int = 0) -> tuple[Any, Any]:
    """The config and the model, float32."""
    family = {"qwen2": qwen2, "qwen3": qwen3}[args.family]
    kind = {"qwen2": "Qwen2", "qwen3": "Qwen3"}[args.family]
    config = family.ModelConfig(
        num_layers=args.layers,
        vocab_size=args.vocab,
        embed_dim=args.width,
        hidden_dim=args.hidden,
        num_heads=args.heads,
        num_kv_heads=args.kv_heads,
        head_dim=args.head_size,
        rope_theta=10_000,
        norm_eps=1e-6,
        use_tied_embedding=args.family == "qwen3",
    )
    return config, getattr(family, kind)(config, rngs=nnx.Rngs(seed))


def parameter_count(model: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(nnx.state(model, nnx.Param)))


class CompileTimer:
    """How many programs were compiled, and how long tracing, lowering or compiling went on, counted
    once where they overlap.
    """

    def __init__(self) -> None:
        self.count = 0
        self._spans: list[tuple[float, float]] = []
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            now = time.perf_counter()
            self._spans.append((now - duration_secs, now))
            self.count += event.endswith("backend_compile_duration")

    def seconds_since(self, begin: float) -> float:
        """Seconds of it after `began`."""
        total, reached = 0.0, begin
        for start, stop in sorted(self._spans):
            total += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
        return total

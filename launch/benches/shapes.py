"""The model that is measured, the engine that samples from it, and what is said of every measurement."""

import os
from dataclasses import dataclass, fields
from importlib.metadata import version
from typing import Any

import jax

from agentrl_jax.errors import UserError
from agentrl_jax.launch.options import option
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.models.decoder import Decoder, DecoderConfig, parameter_count
from agentrl_jax.sharding import MeshConfig


@dataclass
class Shape:
    """A random decoder in float32, of the shape that the rival has too."""

    family: str = option("qwen3", "qwen2: biases on queries, keys and values, a head of its own; qwen3: query and key norms, tied.")
    layers: int = option(4, "Layers.", 1)
    width: int = option(128, "Of the residual stream.", 1)
    hidden: int = option(512, "Inner width of the MLP.", 1)
    heads: int = option(4, "Query heads.", 1)
    kv_heads: int = option(2, "Key and value heads.", 1)
    head_size: int = option(32, "Numbers of a head.", 2)
    vocab: int = option(1024, "Token ids.", 1)

    def flags(self) -> list[str]:
        """The shape as flags of a rival's script."""
        return [f"--{field.name}={getattr(self, field.name)}" for field in fields(Shape)]

    def config(self) -> DecoderConfig:
        """The decoder's config. Raises UserError for an unknown family."""
        if self.family not in ("qwen2", "qwen3"):
            raise UserError(f"--family={self.family} is neither qwen2 nor qwen3")
        qwen3 = self.family == "qwen3"
        return DecoderConfig(
            self.layers, self.width, self.hidden, self.heads, self.kv_heads, self.head_size,
            qk_norm=qwen3, qkv_bias=not qwen3, tied_head=qwen3,
        )  # fmt: skip

    def build(self) -> tuple[Decoder, Any]:
        """The policy and fresh parameters."""
        policy = self.config().build(self.vocab)
        return policy, policy.init(jax.random.key(0))

    @property
    def params(self) -> int:
        return parameter_count(self.config(), self.vocab)


@dataclass
class Serving:
    """How the engine works; what is 0 is left to `EngineConfig`'s default."""

    devices: int = option(1, "Devices that share the rows, in rollout and update; on a CPU so many are made.", 1)
    chunk: int = option(0, "Prompt tokens a row per prefill program; 0: the engine's default.", 0)
    burst: int = option(0, "Tokens a row per decode program; 0: the engine's default.", 0)
    patience: float = option(0.02, "Seconds without news after which the engine no longer waits for rows that think.", 0.0)

    def prepare(self) -> None:
        """Make the devices; before anything is computed."""
        if self.devices > 1:
            jax.config.update("jax_num_cpu_devices", self.devices)

    def engine(self, policy: Decoder, params: Any, rows: int, positions: int, parked: int = 0) -> LocalEngine:
        """An engine of `rows` and of `parked` places beside them."""
        chosen: dict[str, Any] = {name: getattr(self, name) for name in ("chunk", "burst") if getattr(self, name)}
        config = EngineConfig(
            rows=rows, parked=parked, positions=positions, patience=self.patience, mesh=MeshConfig(data=self.devices), **chosen
        )
        return LocalEngine(policy, config, params)


def surroundings() -> dict[str, Any]:
    """Where and with what it was measured."""
    packages = {name: version(name) for name in ("agentrl_jax", "jax", "jaxlib", "flax")}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"versions": packages, "device": jax.devices()[0].device_kind, "cores": cores, "load": round(os.getloadavg()[0], 1)}

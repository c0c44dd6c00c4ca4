"""The flags of a benchmark's model and engine, and the environment that every report includes."""

import dataclasses
import inspect
import os
from dataclasses import dataclass, fields
from importlib.metadata import version
from typing import Any

import jax

from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.garbage_collection import collect_seldom
from agentrl_jax.models import presets
from agentrl_jax.models.decoder import Decoder, DecoderConfig, parameter_count


@dataclass
class ModelShape:
    """A random decoder of the same shape as the rival's in float32, or of a published model's."""

    preset: str = option(
        "", "A shape of models/presets.py, as qwen3_0_6b, in bfloat16; the others are ignored."
    )
    family: str = option(
        "qwen3",
        "qwen2: biases on queries, keys and values, untied head; qwen3: query and key norms, "
        "tied head.",
    )
    layers: int = option(4, "Layers.", 1)
    width: int = option(128, "Width of the residual stream.", 1)
    hidden: int = option(512, "Inner width of the MLP.", 1)
    heads: int = option(4, "Query heads.", 1)
    kv_heads: int = option(2, "Key and value heads.", 1)
    head_size: int = option(32, "Size of a head.", 2)
    vocab: int = option(1024, "Vocabulary size.", 1)

    def flags(self) -> list[str]:
        """The shape as flags of a rival's script."""
        names = [field.name for field in fields(ModelShape) if field.name != "preset"]
        return [f"--{name}={getattr(self, name)}" for name in names]

    def config(self) -> DecoderConfig:
        """The decoder's config. Raises UserError for an unknown family or preset."""
        if self.preset:
            preset = getattr(presets, self.preset, None)
            if self.preset.startswith("_") or not inspect.isfunction(preset):
                raise UserError(f"--preset={self.preset} is none of models/presets.py")
            config, self.vocab = preset()
            return dataclasses.replace(config, compute_dtype="bfloat16")
        if self.family not in ("qwen2", "qwen3"):
            raise UserError(f"--family={self.family} is neither qwen2 nor qwen3")
        qwen3 = self.family == "qwen3"
        return DecoderConfig(
            self.layers, self.width, self.hidden, self.heads, self.kv_heads, self.head_size,
            qk_norm=qwen3, qkv_bias=not qwen3, tied_head=qwen3,
        )  # fmt: skip

    def build(self) -> tuple[Decoder, Any]:
        """The policy and fresh parameters."""
        policy = self.config().build(self.vocab)  # a preset sets the vocabulary too
        return policy, policy.init(jax.random.key(0))

    @property
    def params(self) -> int:
        config = self.config()
        return parameter_count(config, self.vocab)


@dataclass
class EngineSetup:
    """The engine's settings; 0 stands for the default of `EngineConfig`."""

    devices: int = option(
        1, "Devices over which rollout and update split rows; simulated on a CPU.", 1
    )
    chunk: int = option(0, "Prompt tokens per row and prefill program; 0: the engine's default.", 0)
    burst: int = option(0, "Tokens per row and decode program; 0: the engine's default.", 0)
    batching_delay: float = option(
        0.02,
        "Seconds without a new call after which the engine stops waiting for free rows.",
        0.0,
    )

    def prepare(self) -> None:
        """Create the devices; call it before any computation."""
        if self.devices > 1:
            jax.config.update("jax_num_cpu_devices", self.devices)

    def engine(
        self, policy: Decoder, params: Any, rows: int, positions: int, parked: int = 0
    ) -> LocalEngine:
        """An engine with `rows` rows and `parked` further slots."""
        overrides: dict[str, Any] = {
            field: value
            for field, value in (("prefill_chunk", self.chunk), ("min_decode_steps", self.burst))
            if value
        }
        config = EngineConfig(
            rows=rows,
            parked_slots=parked,
            positions=positions,
            batching_delay=self.batching_delay,
            mesh=MeshConfig(data=self.devices),
            **overrides,
        )
        engine = LocalEngine(policy, config, params)
        collect_seldom()  # as where agents are trained, evaluated and served
        return engine


def run_environment() -> dict[str, Any]:
    """Package versions, device, cores and load of the measurement."""
    packages = {name: version(name) for name in ("agentrl_jax", "jax", "jaxlib", "flax")}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "versions": packages,
        "device": jax.devices()[0].device_kind,
        "cores": cores,
        "load": round(os.getloadavg()[0], 1),
    }

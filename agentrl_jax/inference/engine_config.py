"""`EngineConfig`: the sizes and devices of a local engine."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.errors import UserError


@dataclass
class EngineConfig:
    """The sizes and devices of a `LocalEngine`, or of several that work as one."""

    rows: int = 64  # calls at once
    parked_slots: int = 0  # more episodes whose KV cache is kept while they wait on environments
    positions: int = 256  # longest prompt + action
    prefill_chunk: int = 16  # prompt tokens per row and prefill program
    # Prompt tokens per prefill program and shard: it takes as many rows. Too few wait for the
    # weights to be read (on a TPU v5e below 240 in bfloat16), too many are seldom all there. 0: a
    # chunk of every row; on a CPU 128.
    prefill_tokens: int = field(default=0, metadata=OMITTED_AT_DEFAULT)
    min_decode_steps: int = 8  # steps after which a decode program ends as soon as some call has
    max_decode_steps: int = 32  # steps after which it ends anyway
    # Attention reads positions / 2^(spans-1), ..., positions / 2 or all positions, as the longest
    # live row needs. More than one span is faster for long contexts, but then the other rows of a
    # batch can change the last bits of a log-prob.
    spans: int = 1
    batching_delay: float = 0.02  # longest wait for one more request before a program, in seconds
    alternatives: int = 0  # how many of the likeliest tokens are recorded with every token
    # Tokens that a decode step guesses and checks along with the next one: those that followed the
    # last two where they stood before in the row (prompt lookup). Calls stay the same.
    guesses: int = field(default=0, metadata=OMITTED_AT_DEFAULT)
    # The numbers of patches for which a program of the vision tower is compiled, each of one image;
    # (): prompts hold no images.
    image_patches: tuple[int, ...] = field(default=(), metadata=OMITTED_AT_DEFAULT)
    # Of the weights' matrices, float32, bfloat16 or float16: wider ones are rounded when they are
    # published; "": the policy's compute dtype.
    dtype: str = field(default="", metadata=OMITTED_AT_DEFAULT)
    drain_before_update: bool = False  # new weights wait until the calls in progress have ended
    # calls of a program that samples calls outside of episodes, all at once (`Runtime.sample`), in
    # which prompts that extend each other are read as one; 0: they are requests as in episodes
    batch_rows: int = field(default=0, metadata=OMITTED_AT_DEFAULT)
    # `data` splits rows; `tensor` and `expert` split weights.
    mesh: MeshConfig = field(default_factory=lambda: MeshConfig(data=1))
    first_device: int = 0  # of this process's devices
    # Engines that work as one, each with all of the above on its own devices; their weights are
    # updated one after another.
    engines: int = 1

    def devices(self) -> Mesh:
        """The engine's mesh.

        Raises:
            UserError: this process has too few devices, or the mesh is none for an engine.
        """
        m, local = self.mesh, jax.local_devices()[self.first_device :]
        if m.fsdp != 1:
            raise UserError(
                "an engine splits its weights over tensor and expert; over fsdp they would be "
                "gathered for every token"
            )
        if m.devices_per_process or m.memory_gb or set(m.dcn_sizes()) != {1}:
            raise UserError(
                "an engine's devices are of one process: of its mesh only data, expert and tensor "
                "may be set"
            )
        sizes = (m.data, m.expert, m.tensor)
        size = len(local) if -1 in sizes else int(np.prod(sizes))
        if size > len(local):
            raise UserError(
                f"the engine's {m} needs {size} devices; from first_device={self.first_device} on "
                f"there are {len(local)}"
            )
        return make_mesh(m, local[:size])

    def all_devices(self) -> set[Any]:
        """The devices of all engines. Raises UserError as `devices`."""
        first, size = self.first_device, self.devices().size
        return set(jax.local_devices()[first : first + self.engines * size])


def validate_engine_config(config: EngineConfig, num_shards: int) -> None:
    """Check that the sizes fit each other; `num_shards` is the size of the mesh's data axis.

    Raises:
        UserError: they do not.
    """
    c = config
    if (
        min(c.rows, c.prefill_chunk, c.min_decode_steps, c.spans) < 1
        or min(c.parked_slots, c.prefill_tokens, c.alternatives, c.guesses, c.batch_rows) < 0
        or c.positions < 2 ** (c.spans - 1)
    ):
        raise UserError(
            "an engine needs rows, prefill_chunk, min_decode_steps, spans >= 1, positions >= "
            f"2^(spans-1), and nothing below 0: {c}"
        )
    if c.engines < 1:
        raise UserError(f"config.engine.engines must be at least 1, not {c.engines}")
    if c.engines > 1:
        raise UserError(
            f"a LocalEngine is one engine: build a pool of {c.engines} with `make_engine`"
        )
    if c.max_decode_steps < c.min_decode_steps:
        raise UserError(
            "an engine's max_decode_steps cannot be less than its min_decode_steps: "
            f"{c.max_decode_steps} < {c.min_decode_steps}"
        )
    if c.rows % num_shards or c.parked_slots % num_shards:
        raise UserError(
            f"an engine's rows ({c.rows}) and parked_slots ({c.parked_slots}) must be multiples of "
            f"its {num_shards} data devices"
        )

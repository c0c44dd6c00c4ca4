"""The programs that a subject would compile, traced for chips that need not exist; nothing is allocated."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled, Traced

from agentrl_jax.decoding import cache_sharding, compile_programs
from agentrl_jax.launch.plans.subject import Subject
from agentrl_jax.local_engine import EngineConfig
from agentrl_jax.models.adapters import Adapted
from agentrl_jax.models.sizes import attended, sizes_of
from agentrl_jax.policy import Policy
from agentrl_jax.sampling import Board
from agentrl_jax.sharding import MeshConfig, weight_shardings


@dataclass(frozen=True)
class Program:
    """One of them. Bytes are those of one chip."""

    name: str
    mesh: Mesh
    traced: Traced
    arguments: dict[str, int]  # what it is given, by kind
    traffic: int  # the least that it reads and writes of these
    tokens: int  # that one run is about, or one round of its loop; on all chips of the mesh
    useful: float  # operations that the model itself takes for them, on all chips; 0: all that the program does
    attended: float = 1.0  # the share of a row's pairs of tokens that attention looks at
    loop: bool = False  # it is a loop that data ends, and figures are of a round

    def compile(self, **options: Any) -> Compiled:
        with jax.set_mesh(self.mesh):
            return self.traced.lower().compile(compiler_options=options)


def held(tree: Any) -> int:
    """Bytes of arrays or of shapes with shardings, on one device."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def update(subject: Subject, mesh: Mesh) -> tuple[list[Program], dict[str, int]]:
    """The gradient and the optimizer program, and what the learner holds between them: bytes by kind."""
    policy, decoder = subject.policy(), subject.decoder()
    learner, microbatch = subject.method().build(policy, mesh, 1000).described()
    state, batch = learner.described(microbatch)
    gradient, optimizer = learner.traced(microbatch)
    trained = jax.tree.map(lambda trained, x: x if trained else None, policy.trainable(), state.params)
    weights, change, moments, rows = held(state.params), held(trained), held(state.opt_state), held(batch)
    sizes = sizes_of(decoder, MeshConfig(1, 1, 1, 1), subject.length, "tpu")
    tokens, share = math.prod(microbatch.batch.tokens.shape), attended(decoder.config, subject.length)
    useful = float((2 * sizes.forward if isinstance(policy, Adapted) else sizes.training) * tokens)  # frozen weights need no gradient
    given = {"weights": weights, "gradient": change, "batch": rows}
    first = Program("gradient", mesh, gradient, given, weights + 2 * change + rows, tokens, useful, share)
    given = {"weights": weights, "gradient": change, "moments": moments}
    last = Program("optimizer", mesh, optimizer, given, 3 * change + 2 * moments, 0, 0.0)
    kept = {"weights": weights, "moments": moments} | ({"reference": weights} if subject.kl else {})
    return [first, last], kept


class Engine:
    """The programs of one engine."""

    def __init__(self, subject: Subject, mesh: Mesh) -> None:
        self.policy, self.config, self.mesh = subject.policy(), subject.engine(), mesh
        self.rows = NamedSharding(mesh, PartitionSpec("data"))
        self.cache, self.parked = (_cache(self.policy, mesh, n, self.config) for n in (self.config.rows, self.config.parked))

    def publish(self) -> Program:
        """A copy of the learner's weights made into the engine's: `Resident.placed`."""
        shapes = jax.eval_shape(self.policy.init, jax.random.key(0))
        shardings = weight_shardings(self.mesh, self.policy.axes(), shapes)
        stacked = jax.tree.map(_placed, shapes, shardings)
        with jax.set_mesh(self.mesh):
            traced = jax.jit(lambda p: jax.tree.map(jnp.copy, self.policy.unstack(p))).trace(stacked)
        return Program("publish", self.mesh, traced, {"copy": held(stacked)}, 2 * held(stacked), 0, 0.0)

    def weights(self, published: Compiled) -> Any:
        """The engine's weights as shapes, from its compiled `publish`."""
        return jax.tree.map(lambda x, s: _placed(x, s), published.out_info, published.output_shardings)

    def sampling(self, params: Any, names: Collection[str]) -> Iterator[Program]:
        """Those of prefill, a step of decode, and a copied row that are named."""
        c, mesh = self.config, self.mesh
        programs: Any = compile_programs(self.policy, mesh, self.cache, c.longest)
        row, board = self._of_rows(jnp.int32), Board(c.rows)
        tokens, number = self._of_rows(jnp.int32, c.chunk), jax.ShapeDtypeStruct((), jnp.int32)
        ints, floats = (_placed(x, self.rows) for x in (board.ints, board.floats))
        weights, cache = held(params), held(self.cache)
        given = {"engine weights": weights, "cache": cache}
        with jax.set_mesh(mesh):
            if "prefill" in names:
                traced, written = programs.prefill.trace(params, self.cache, row, tokens, row, row, None), cache * c.chunk // c.positions
                yield Program("prefill", mesh, traced, given, weights + cache + written, c.rows * c.chunk, 0.0)
            if "decode" in names:
                traced = programs.decode.trace(params, self.cache, ints, floats, number, number)
                yield Program("decode", mesh, traced, given, weights + cache, c.rows, 0.0, loop=True)
            if "move" in names:
                parts = mesh.shape["data"]
                moves = jax.ShapeDtypeStruct((parts, 3, c.rows // parts), jnp.int32, sharding=self.rows)
                count = jax.ShapeDtypeStruct((parts, 3), jnp.int32, sharding=self.rows)
                traced, parked = programs.move.trace(self.cache, self.parked, moves, moves, count), held(self.parked)
                yield Program("move", mesh, traced, {"cache": cache, "parked": parked}, 2 * cache // c.rows, 0, 0.0, loop=True)

    def _of_rows(self, dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.config.rows, *shape), dtype, sharding=self.rows)


def _placed(x: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _cache(policy: Policy, mesh: Mesh, rows: int, config: EngineConfig) -> Any:
    empty = jax.eval_shape(lambda: policy.init_cache(rows, config.positions))
    return jax.tree.map(lambda x: _placed(x, cache_sharding(mesh, empty)), empty)

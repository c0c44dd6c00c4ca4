"""The programs of a `PlanSpec`, traced for chips that are only described; nothing is allocated."""

import dataclasses
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled, Traced

from agentrl_jax.distributed.resharding import first_step, layout_program, shared_layout
from agentrl_jax.distributed.sharding import MeshConfig, weight_shardings
from agentrl_jax.image_format import ImagePatches, PackedImages
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.programs import cache_sharding, compile_programs
from agentrl_jax.inference.prompt_features import empty_images
from agentrl_jax.inference.publication import Publication, WeightGroup
from agentrl_jax.inference.sampling import SamplerState
from agentrl_jax.launch.plans.subject import PlanSpec
from agentrl_jax.learner.image_rows import ImageRows
from agentrl_jax.models.adapters import LoraPolicy
from agentrl_jax.models.memory_estimate import estimate_memory, visible_pair_fraction
from agentrl_jax.models.vision.cost import estimate_image, image_flops
from agentrl_jax.models.vision.policy import VisionLanguageModel
from agentrl_jax.policy import Policy, VisionPolicy, image_format
from agentrl_jax.sampling_weights import sampling_dtype


@dataclass(frozen=True)
class Program:
    """A traced program. Bytes are those of one chip."""

    name: str
    mesh: Mesh
    traced: Traced
    arguments: dict[str, int]  # bytes by kind
    traffic: int  # least bytes of these that it reads and writes
    tokens: int  # of a run, or of an iteration of its loop; on all chips of the mesh
    # operations that the model needs for them, on all chips; 0: all operations of the program
    model_flops: float
    attended_fraction: float = 1.0  # of a row's pairs of tokens, those that attention computes
    is_loop: bool = False  # a loop whose length depends on data: figures are per iteration

    def compile(self, **options: Any) -> Compiled:
        with jax.set_mesh(self.mesh):
            return self.traced.lower().compile(compiler_options=options)


def bytes_per_device(tree: Any) -> int:
    """Bytes of arrays or of shapes with shardings, on one device."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree)
    )


def update_programs(spec: PlanSpec, mesh: Mesh) -> tuple[list[Program], dict[str, int]]:
    """The gradient and optimizer programs, and the learner's bytes between them by kind."""
    policy, decoder = spec.policy(), spec.decoder()
    config = dataclasses.replace(spec.algorithm_config(), images=spec.image_rows())
    learner, microbatch = config.build(policy, mesh, 1000).learner_and_padding_batch()
    state, batch = learner.abstract_inputs(microbatch)
    gradient, optimizer = learner.trace(microbatch)
    trained = jax.tree.map(
        lambda trained, x: x if trained else None, policy.trainable(), state.params
    )
    weights, change, moments, rows = (
        bytes_per_device(state.params),
        bytes_per_device(trained),
        bytes_per_device(state.opt_state),
        bytes_per_device(batch),
    )
    sizes = estimate_memory(decoder, MeshConfig(1, 1, 1, 1), spec.length, "tpu")
    tokens, attended_fraction = (
        math.prod(microbatch.batch.tokens.shape),
        visible_pair_fraction(decoder.config, spec.length),
    )
    # Frozen weights need no gradient.
    useful = float(
        (2 * sizes.forward_flops if isinstance(policy, LoraPolicy) else sizes.training_flops)
        * tokens
    )
    if isinstance(microbatch.batch.images, PackedImages) and isinstance(
        decoder, VisionLanguageModel
    ):
        image = estimate_image(decoder, spec.image_pixels).forward_flops
        passes = 2 if isinstance(policy, LoraPolicy) else 3
        useful += passes * image * spec.images * len(microbatch.batch.tokens)
    arguments = {"weights": weights, "gradient": change, "batch": rows}
    first = Program(
        "gradient",
        mesh,
        gradient,
        arguments,
        weights + 2 * change + rows,
        tokens,
        useful,
        attended_fraction,
    )
    arguments = {"weights": weights, "gradient": change, "moments": moments}
    last = Program("optimizer", mesh, optimizer, arguments, 3 * change + 2 * moments, 0, 0.0)
    resident = {"weights": weights, "moments": moments} | (
        {"reference": weights} if spec.kl else {}
    )
    return [first, last], resident


class EnginePrograms:
    """The programs of one engine."""

    def __init__(self, spec: PlanSpec, mesh: Mesh) -> None:
        self.policy, self.config, self.mesh = spec.policy(), spec.engine_config(), mesh
        self._images = spec.image_rows()
        dtype = sampling_dtype(self.policy, self.config.dtype)
        self._shape_tree = jax.eval_shape(self.policy.init, jax.random.key(0))
        self._shapes = jax.tree.leaves(self._shape_tree)
        self._groups, self._tree = Publication(self.policy, mesh, dtype).groups(self._shape_tree)
        self.row_sharding = NamedSharding(mesh, PartitionSpec("data"))
        self.cache_shapes, self.parked_shapes = (
            _make_cache_shapes(self.policy, mesh, n, self.config)
            for n in (self.config.rows, self.config.parked_slots)
        )

    def weight_shapes(self) -> Any:
        """The engine's weights as shapes, with the shardings that publication gives them."""
        leaves: dict[int, jax.ShapeDtypeStruct] = {}
        for group in self._groups:
            with jax.set_mesh(self.mesh):
                program = group.program.lower(self._moved(group)).compile()
            shapes = map(_sharded_shape, program.out_info, program.output_shardings)
            leaves |= zip(group.outputs, shapes, strict=True)
        return jax.tree.unflatten(self._tree, [leaves[i] for i in range(len(leaves))])

    def publication_programs(self, learner_mesh: Mesh, weights: Any) -> list[Program]:
        """What runs for the group of arrays that takes most memory when weights are published: its
        largest array is resharded on the learner's devices, and the group is written over old
        weights.

        Args:
            learner_mesh: its devices are taken in the order of the layout that is made there.
            weights: the engine's, as `weight_shapes`.
        """
        group = max(self._groups, key=lambda group: bytes_per_device(self._moved(group)))
        moved, every_old = self._moved(group), jax.tree.leaves(weights)
        old = [every_old[i] for i in group.outputs]
        with jax.set_mesh(self.mesh):
            traced = group.program_into.trace(moved, old)
        sizes = {"arrays on their way": bytes_per_device(moved), "replaced": bytes_per_device(old)}
        write = Program("publish", self.mesh, traced, sizes, sum(sizes.values()), 0, 0.0)
        shardings = weight_shardings(learner_mesh, self.policy.axes(), self._shape_tree)
        position = max(range(len(moved)), key=lambda i: math.prod(moved[i].shape))
        index, _, target = group.inputs[position]
        source = jax.tree.leaves(shardings)[index]
        x = _sharded_shape(moved[position], source)
        layout = shared_layout(x, target)
        assert isinstance(layout.mesh, Mesh)
        devices = np.reshape(layout.mesh.devices, learner_mesh.devices.shape)
        mesh = Mesh(devices, learner_mesh.axis_names, axis_types=learner_mesh.axis_types)
        x = _sharded_shape(x, NamedSharding(mesh, source.spec))
        traced = layout_program(first_step(x, layout), layout).trace(x)
        sizes = {"cast array": bytes_per_device(x)}
        traffic = bytes_per_device(x) + bytes_per_device(_sharded_shape(x, layout))
        return [Program("reshard", mesh, traced, sizes, traffic, 0, 0.0), write]

    def _moved(self, group: WeightGroup) -> list[jax.ShapeDtypeStruct]:
        """A group's arrays on the engine's devices, before they are written."""
        return [
            jax.ShapeDtypeStruct(self._shapes[i].shape, dtype, sharding=sharding)
            for i, dtype, sharding in group.inputs
        ]

    def sampling_programs(self, params: Any, names: Collection[str]) -> Iterator[Program]:
        """Those named of `prefill`, `decode` and `move`, which copies slots of the cache."""
        c, mesh = self.config, self.mesh
        programs: Any = compile_programs(self.policy, mesh, self.cache_shapes, c.max_decode_steps)
        row, sampler_state = self._per_row(jnp.int32), SamplerState(c.rows)
        tokens, number = (
            self._per_row(jnp.int32, c.prefill_chunk),
            jax.ShapeDtypeStruct((), jnp.int32),
        )
        ints, floats = (
            _sharded_shape(x, self.row_sharding) for x in (sampler_state.ints, sampler_state.floats)
        )
        weights, cache = bytes_per_device(params), bytes_per_device(self.cache_shapes)
        arguments = {"engine weights": weights, "cache": cache}
        with jax.set_mesh(mesh):
            if "encode" in names and self._images is not None:
                yield self._encode_program(params, arguments["engine weights"], self._images)
            if "prefill" in names:
                images = self._chunk_images(tokens.shape)
                traced, written = (
                    programs.prefill.trace(
                        params, self.cache_shapes, row, tokens, row, row, images
                    ),
                    cache * c.prefill_chunk // c.positions,
                )
                yield Program(
                    "prefill",
                    mesh,
                    traced,
                    arguments,
                    weights + cache + written,
                    c.rows * c.prefill_chunk,
                    0.0,
                )
            if "decode" in names:
                traced = programs.decode.trace(
                    params, self.cache_shapes, ints, floats, number, number
                )
                yield Program(
                    "decode", mesh, traced, arguments, weights + cache, c.rows, 0.0, is_loop=True
                )
            if "move" in names:
                parts = mesh.shape["data"]
                moves = jax.ShapeDtypeStruct(
                    (parts, 3, c.rows // parts), jnp.int32, sharding=self.row_sharding
                )
                count = jax.ShapeDtypeStruct((parts, 3), jnp.int32, sharding=self.row_sharding)
                traced, parked = (
                    programs.copy_slots.trace(
                        self.cache_shapes, self.parked_shapes, moves, moves, count
                    ),
                    bytes_per_device(self.parked_shapes),
                )
                yield Program(
                    "move",
                    mesh,
                    traced,
                    {"cache": cache, "parked": parked},
                    2 * cache // c.rows,
                    0,
                    0.0,
                    is_loop=True,
                )

    def _encode_program(self, params: Any, weights: int, images: ImageRows) -> Program:
        """The tower on one image."""
        policy = self.policy
        form = image_format(policy)
        assert isinstance(policy, VisionPolicy) and form is not None
        replicated = NamedSharding(self.mesh, PartitionSpec())
        grid = images.processor.grid(1, 1)
        patches = np.zeros((math.prod(grid), form.patch_numbers), np.float32)
        packed = form.pack([[ImagePatches(patches, grid)]], len(patches))
        shapes = jax.tree.map(lambda x: _sharded_shape(x, replicated), packed)
        traced = jax.jit(policy.encode_images, out_shardings=replicated).trace(params, shapes)
        sizes = {"engine weights": weights, "image": bytes_per_device(shapes)}
        decoder = policy.base if isinstance(policy, LoraPolicy) else policy
        assert isinstance(decoder, VisionLanguageModel)
        flops = image_flops(decoder.config.vision, decoder.config.width, grid)
        tokens = form.count_tokens(grid)
        return Program("encode", self.mesh, traced, sizes, bytes_per_device(shapes), tokens, flops)

    def _chunk_images(self, shape: tuple[int, ...]) -> Any:
        """What a prefill program takes of images; None: nothing."""
        form = None if self._images is None else image_format(self.policy)
        if form is None:
            return None
        empty = jax.eval_shape(lambda: empty_images(form, *shape))
        return jax.tree.map(lambda x: _sharded_shape(x, self.row_sharding), empty)

    def _per_row(self, dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.config.rows, *shape), dtype, sharding=self.row_sharding)


def _sharded_shape(x: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _make_cache_shapes(policy: Policy, mesh: Mesh, rows: int, config: EngineConfig) -> Any:
    empty = jax.eval_shape(lambda: policy.init_cache(rows, config.positions))
    return jax.tree.map(lambda x: _sharded_shape(x, cache_sharding(mesh, empty)), empty)

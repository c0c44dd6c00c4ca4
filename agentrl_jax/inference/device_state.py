"""`DeviceState`: an engine's weights and KV caches on its devices, and the programs over them."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from agentrl_jax.clock import epoch_seconds
from agentrl_jax.distributed.sharding import num_shards
from agentrl_jax.inference.decode_program import DecodeChunk
from agentrl_jax.inference.image_encoder import ImageEncoder
from agentrl_jax.inference.kv_slots import KVSlot, SlotCopy
from agentrl_jax.inference.programs import cache_sharding, compile_programs
from agentrl_jax.inference.prompt_features import empty_images, place_images
from agentrl_jax.inference.publication import Publication
from agentrl_jax.inference.request import Request
from agentrl_jax.inference.sampling import SamplerState
from agentrl_jax.policy import KVCache, Params, Policy

WIDE_FACTOR = 8  # tokens per row of the wide prefill program, in prefill chunks
PREFILL_TOKENS_ON_CPU = 128  # see `EngineConfig.prefill_tokens`


class DeviceState:
    """The KV cache of `rows` rows and `parked_slots` parked slots, each of `positions` tokens."""

    def __init__(
        self,
        policy: Policy,
        mesh: Mesh,
        *,
        rows: int,
        parked_slots: int,
        positions: int,
        prefill_chunk: int,
        prefill_tokens: int,
        max_decode_steps: int,
        alternatives: int,
        guesses: int,
        image_patches: Sequence[int],
        dtype: np.dtype,
    ) -> None:
        self.rows, self.prefill_chunk, self._mesh = rows, prefill_chunk, mesh
        self.num_shards = num_shards(mesh, ("data",))
        self._on_cpu = mesh.devices.flat[0].platform == "cpu"
        # Rows per shard of the prefill programs, the narrow and the wide one.
        rows_per_shard = rows // self.num_shards
        if not prefill_tokens:
            chunk_of_every_row = rows_per_shard * prefill_chunk
            prefill_tokens = PREFILL_TOKENS_ON_CPU if self._on_cpu else chunk_of_every_row
        self.prefill_rows = tuple(
            min(rows_per_shard, -(-prefill_tokens // (factor * prefill_chunk)))
            for factor in (1, WIDE_FACTOR)
        )
        shapes = [
            jax.eval_shape(lambda n=n: policy.init_cache(n, positions))
            for n in (rows, parked_slots)
        ]
        sharding = cache_sharding(mesh, shapes[0])
        self._cache, self._parked_cache = (
            jax.jit(lambda s=s: _zero_cache(s), out_shardings=sharding)() for s in shapes
        )
        self._programs = compile_programs(
            policy, mesh, shapes[0], max_decode_steps, alternatives, guesses
        )
        self._publication = Publication(policy, mesh, dtype)
        # One buffer is then that of several devices, and cannot be written for one of them.
        self._shares_buffers = self._on_cpu and self.num_shards > 1
        # None: prompts hold no images.
        self.image_encoder = (
            ImageEncoder(policy, mesh, image_patches, WIDE_FACTOR * prefill_chunk)
            if image_patches
            else None
        )
        self.sampler_state = SamplerState(rows, positions if guesses else 0)
        self._last_prefill: jax.Array | None = None  # is there when that program has run

    @property
    def counts(self) -> dict[str, int]:
        """Images that the vision tower has encoded, where it may."""
        encoder = self.image_encoder
        return {} if encoder is None else {"encoded_images": encoder.num_encoded}

    def put_weights(self, params: Params, old: Params = None) -> Params:
        """A copy of the weights on the engine's devices, always with the same shardings.

        Args:
            params: the learner's weights.
            old: those of an earlier call, which are donated: no program may use them any more.
        """
        if not self._shares_buffers:
            return self._publication(params, old)
        return jax.tree.map(_share_cpu_buffers, self._publication(params))

    def prefill(
        self,
        params: Params,
        attention_length: int,
        row_chunks: Sequence[tuple[int, int, Request]],
        wide: bool = False,
    ) -> int:
        """Write keys and values of the next tokens of some rows, all but each request's last.

        Args:
            params: the engine's weights.
            attention_length: cached positions that attention reads.
            row_chunks: row, tokens cached so far, and request.
            wide: use the program that takes `WIDE_FACTOR` chunks of a row, instead of one. Both
                take at most their number of `prefill_rows` per shard.

        Returns:
            How many tokens were written.
        """
        rows_per_shard = self.rows // self.num_shards
        chunk = WIDE_FACTOR * self.prefill_chunk if wide else self.prefill_chunk
        n = self.prefill_rows[wide]
        all_rows = n == rows_per_shard
        tokens = np.zeros((self.num_shards * n, chunk), np.int32)
        start, count = np.zeros(len(tokens), np.int32), np.zeros(len(tokens), np.int32)
        cache_row = np.arange(len(tokens), dtype=np.int32)
        if not all_rows:
            cache_row += self.rows  # past the end: none
        encoder = self.image_encoder
        images = None if encoder is None else empty_images(encoder.format, *tokens.shape)
        num_used = [0] * self.num_shards
        for row, cached, request in row_chunks:
            shard, index = divmod(row, rows_per_shard)
            at = row if all_rows else shard * n + num_used[shard]
            num_used[shard] += 1
            if not all_rows:
                cache_row[at] = index
            piece = request.token_slice(cached, request.chunk_end(cached, chunk))
            tokens[at, : len(piece)], start[at], count[at] = piece, cached, len(piece)
            if encoder is not None and images is not None:
                place_images(encoder, params, images, at, cached, len(piece), request)
        cache = dataclasses.replace(self._cache, attention_length=attention_length)
        self._cache, self._last_prefill = self._programs.prefill(
            params, cache, cache_row, tokens, start, count, images
        )
        return int(count.sum())

    def decode(
        self,
        params: Params,
        attention_length: int,
        min_steps: int,
        max_steps: int,
        on_started: Callable[[], None] = lambda: None,
    ) -> tuple[DecodeChunk, float]:
        """Decode the rows that are live in `sampler_state`.

        Args:
            params: the engine's weights.
            attention_length: cached positions that attention reads.
            min_steps: see `decode_program.decode`.
            max_steps: see `decode_program.decode`.
            on_started: called once all programs are queued on the devices.

        Returns:
            The sampled tokens, and when all prefill programs had run: the wait for them is no
            longer than that for the tokens, since the decode program has been started.
        """
        self._wait_on_cpu()
        cache = dataclasses.replace(self._cache, attention_length=attention_length)
        limits = np.int32(min_steps), np.int32(max_steps)
        self._cache, chunk = self._programs.decode(
            params, cache, self.sampler_state.ints, self.sampler_state.floats, *limits
        )
        on_started()
        jax.block_until_ready(self._last_prefill)
        prefilled = epoch_seconds()
        return jax.device_get(chunk), prefilled

    def copy_slots(self, copies: Sequence[SlotCopy]) -> None:
        """Copy KV slots, as if one after the other."""
        rows_per_shard = self.rows // self.num_shards
        for commuting in group_commuting_copies(copies, rows_per_shard):
            source, target = np.zeros((2, self.num_shards, 3, rows_per_shard), np.int32)
            count = np.zeros((self.num_shards, 3), np.int32)
            for copy in commuting:
                shard, phase = copy.target.shard, copy_phase(copy, rows_per_shard)
                at = shard, phase, count[shard, phase]
                source[at], target[at] = (
                    slot.index - rows_per_shard * (slot.index >= rows_per_shard)
                    for slot in (copy.source, copy.target)
                )
                count[shard, phase] += 1
            self._cache, self._parked_cache = self._programs.copy_slots(
                self._cache, self._parked_cache, source, target, count
            )

    def _wait_on_cpu(self) -> None:
        """On several CPU devices, wait for running programs.

        One thread often runs what is queued behind a program, for all devices in turn.
        """
        if self._on_cpu and self._mesh.size > 1:
            jax.block_until_ready(self._cache)

    def warm_up(self, params: Params, attention_lengths: Sequence[int]) -> None:
        """Compile every program for every attention length."""
        rows = np.zeros((self.num_shards, 3, self.rows // self.num_shards), np.int32)
        count = np.zeros((self.num_shards, 3), np.int32)
        if self.image_encoder is not None:
            self.image_encoder.warm_up(params)
        for attention_length in attention_lengths:
            self.prefill(params, attention_length, [])
            self.prefill(params, attention_length, [], wide=True)
            self.decode(params, attention_length, 0, 0)
            self._cache, self._parked_cache = self._programs.copy_slots(
                self._cache, self._parked_cache, rows, rows, count
            )


def copy_phase(copy: SlotCopy, rows: int) -> int:
    """When the program makes a copy: 0 row to parked slot, 1 row to row, 2 parked slot to row."""
    return 0 if copy.target.index >= rows else 2 if copy.source.index >= rows else 1


class _CommutingCopies:
    """Copies that may be made phase by phase instead of in their order."""

    def __init__(self) -> None:
        self.copies: list[SlotCopy] = []
        self._sources: list[set[KVSlot]] = [set(), set(), set()]  # of each phase
        self._targets: list[set[KVSlot]] = [set(), set(), set()]
        self._counts: Counter[tuple[int, int]] = Counter()  # by phase and shard

    def add(self, copy: SlotCopy, phase: int, max_per_phase: int) -> bool:
        """Add a copy, unless a later phase has read or written what it writes, or has written what
        it reads, or its phase is full.
        """
        later = range(phase + 1, 3)
        if (
            any(copy.target in self._sources[p] or copy.target in self._targets[p] for p in later)
            or any(copy.source in self._targets[p] for p in later)
            or self._counts[phase, copy.target.shard] == max_per_phase
        ):
            return False
        self.copies.append(copy)
        self._sources[phase].add(copy.source)
        self._targets[phase].add(copy.target)
        self._counts[phase, copy.target.shard] += 1
        return True


def group_commuting_copies(copies: Sequence[SlotCopy], max_per_phase: int) -> list[list[SlotCopy]]:
    """Split copies into lists that may be made phase by phase instead of in their order.

    A list has at most `max_per_phase` copies per phase and shard.
    """
    groups: list[_CommutingCopies] = []
    for copy in copies:
        phase = copy_phase(copy, max_per_phase)
        if not groups or not groups[-1].add(copy, phase, max_per_phase):
            groups.append(_CommutingCopies())
            groups[-1].add(copy, phase, max_per_phase)
    return [group.copies for group in groups]


def _zero_cache(shapes: KVCache) -> KVCache:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def _share_cpu_buffers(x: jax.Array) -> jax.Array:
    """`x` with one buffer in memory per distinct shard, shared by all CPU devices that hold it.

    Two buffers with the same contents would compete for the CPU cache that all cores share.
    """
    first: dict[str, jax.Array] = {}
    arrays = []
    for shard in x.addressable_shards:
        shared = first.setdefault(str(shard.index), shard.data)
        is_first = shared is shard.data
        arrays.append(shared if is_first else jax.device_put(np.asarray(shared), shard.device))
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, arrays)

"""`Resident`: an engine's weights and caches on its devices, and the programs over them."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from agentrl_jax.decoding import Burst, cache_sharding, compile_programs
from agentrl_jax.places import Move, Request
from agentrl_jax.policy import Cache, Inputs, Params, Policy
from agentrl_jax.sampling import Board
from agentrl_jax.sharding import shards, weight_shardings

WIDE = 8  # times the chunk: the tokens of a row that the wide prefill program takes


class Resident:
    """Rows, and parked ones, of `positions` each; `chunk` tokens a row are prefilled at once and at most `longest` decoded."""

    def __init__(
        self, policy: Policy, mesh: Mesh, rows: int, parked: int, positions: int, chunk: int, longest: int, alternatives: int, images: bool
    ) -> None:
        self.rows, self.chunk, self.longest, self._mesh = rows, chunk, longest, mesh
        self.parts = shards(mesh, ("data",))
        self._on_cpu = mesh.devices.flat[0].platform == "cpu"
        self.wide_rows = -(-rows // (WIDE * self.parts))  # so that both prefill programs do about the same work
        shapes = [jax.eval_shape(lambda n=n: policy.init_cache(n, positions)) for n in (rows, parked)]
        layout = cache_sharding(mesh, shapes[0])
        self._cache, self._parked = (jax.jit(lambda s=s: _zeros(s), out_shardings=layout)() for s in shapes)
        self._programs = compile_programs(policy, mesh, shapes[0], longest, alternatives)
        self._axes = policy.axes()
        # A copy: putting equal shardings aliases, and the learner's next donation would delete the engine's weights.
        self._copy = jax.jit(lambda p: jax.tree.map(jnp.copy, policy.unstack(p)))
        self.width = _width(policy) if images else 0  # of an image's embeddings; 0: there are no images
        self.board = Board(rows)

    def placed(self, params: Params) -> Params:
        """A copy of the weights on the engine's own devices: one place, so that programs compiled once always fit."""
        held = jax.device_put(params, weight_shardings(self._mesh, self._axes, params))
        with jax.set_mesh(self._mesh):  # how weights are laid out depends on the platform
            return jax.tree.map(_shared, jax.block_until_ready(self._copy(held)))

    def prefill(self, params: Params, span: int, pieces: Sequence[tuple[int, int, Request]], wide: bool = False) -> int:
        """Write the next tokens of some rows, `(row, tokens cached, request)`, up to all but the last; returns how many.

        The program for all rows takes `chunk` tokens of each; the wide one more, of as many rows a part as `wide_rows`.
        """
        chunk, n = (WIDE * self.chunk, self.wide_rows) if wide else (self.chunk, self.rows // self.parts)
        tokens = np.zeros((self.parts * n, chunk), np.int32)
        start, count = np.zeros(len(tokens), np.int32), np.zeros(len(tokens), np.int32)
        where = self.rows + np.arange(len(tokens), dtype=np.int32) if wide else np.arange(len(tokens), dtype=np.int32)
        embeddings, embedded = np.zeros((*tokens.shape, self.width), np.float32), np.zeros(tokens.shape, bool)
        taken = [0] * self.parts
        for row, cached, request in pieces:
            part, index = divmod(row, self.rows // self.parts)
            at = part * n + taken[part] if wide else row
            taken[part] += 1
            if wide:
                where[at] = index
            piece = request.piece(cached, min(cached + chunk, request.length - 1))
            tokens[at, : len(piece)], start[at], count[at] = piece, cached, len(piece)
            for image in request.images:
                first, last = max(image.start, cached), min(image.start + len(image.embeddings), cached + len(piece))
                if first < last:
                    embeddings[at, first - cached : last - cached] = image.embeddings[first - image.start : last - image.start]
                    embedded[at, first - cached : last - cached] = True
        cache = dataclasses.replace(self._cache, span=span)
        images = (embeddings, embedded) if self.width else None
        self._cache = self._programs.prefill(params, cache, where, tokens, start, count, images)
        return int(count.sum())

    def decode(self, params: Params, span: int, least: int, most: int) -> Burst:
        """Decode what the board says."""
        self._settle()
        cache, limits = dataclasses.replace(self._cache, span=span), (np.int32(least), np.int32(most))
        self._cache, burst = self._programs.decode(params, cache, self.board.ints, self.board.floats, *limits)
        return jax.device_get(burst)

    def move(self, moves: Sequence[Move]) -> None:
        """Copy places, as if one after the other."""
        a_part = self.rows // self.parts
        for together in commuting(moves, a_part):
            source, target = np.zeros((2, self.parts, 3, a_part), np.int32)
            count = np.zeros((self.parts, 3), np.int32)
            for move in together:
                at = move.target.part, kind(move, a_part)
                at = *at, count[at]
                source[at], target[at] = (x.index - a_part * (x.index >= a_part) for x in (move.source, move.target))
                count[at[:2]] += 1
            self._cache, self._parked = self._programs.move(self._cache, self._parked, source, target, count)

    def _settle(self) -> None:
        """On a CPU wait for what runs: a program that is queued behind another's end is run by one thread for all devices in turn."""
        if self._on_cpu:
            jax.block_until_ready(self._cache)

    def warm_up(self, params: Params, spans: Sequence[int]) -> None:
        """Compile every program for every span."""
        nowhere, none = np.zeros((self.parts, 3, self.rows // self.parts), np.int32), np.zeros((self.parts, 3), np.int32)
        for span in spans:
            self.prefill(params, span, [])
            self.prefill(params, span, [], wide=True)
            self.decode(params, span, 0, 0)
            self._cache, self._parked = self._programs.move(self._cache, self._parked, nowhere, nowhere, none)


def kind(move: Move, rows: int) -> int:
    """When the program makes a copy: 0 from a row to a parked place, 1 from a row to a row, 2 from a parked place to a row."""
    return 0 if move.target.index >= rows else 2 if move.source.index >= rows else 1


def commuting(moves: Sequence[Move], most: int) -> list[list[Move]]:
    """The moves in lists that may be made by kind instead of in their order, at most so many of a kind in each part."""
    out: list[list[Move]] = []
    for move in moves:
        later = [x for x in out[-1] if kind(x, most) > kind(move, most)] if out else []
        clash = any(move.target in (x.source, x.target) or move.source is x.target for x in later)
        alike = [x for x in out[-1] if kind(x, most) == kind(move, most) and x.target.part == move.target.part] if out else []
        if not out or clash or len(alike) == most:
            out.append([])
        out[-1].append(move)
    return out


def _zeros(shapes: Cache) -> Cache:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def _shared(x: jax.Array) -> jax.Array:
    """`x` in memory once, where several devices of a CPU hold the same part of it: copies would crowd the cache that all cores share."""
    if x.sharding.device_set.copy().pop().platform != "cpu":
        return x
    first: dict[str, jax.Array] = {}
    parts = [first.setdefault(str(part.index), part.data) for part in x.addressable_shards]
    mine = [held if held is part.data else jax.device_put(np.asarray(held), part.device) for held, part in zip(parts, x.addressable_shards)]
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, mine)


def _width(policy: Policy) -> int:
    def hidden(key: jax.Array) -> jax.Array:
        one = jnp.zeros((1, 1), jnp.int32)
        return policy.apply(policy.init(key), Inputs(tokens=one, positions=one, segment_ids=one)).hidden

    return jax.eval_shape(hidden, jax.random.key(0)).shape[-1]

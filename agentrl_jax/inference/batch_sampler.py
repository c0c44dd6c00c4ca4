"""`BatchSampler`: samples many calls that belong to no episode in few programs, whose prompts may
extend each other.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from agentrl_jax.call_checksum import CallChecksum, no_checksum
from agentrl_jax.distributed.sharding import num_shards
from agentrl_jax.inference.decode_program import DecodeChunk, decode
from agentrl_jax.inference.programs import per_data_shard, put_inputs_first
from agentrl_jax.inference.sampling import SamplerState
from agentrl_jax.keys import key_data
from agentrl_jax.policy import Params, Policy, PolicyInputs
from agentrl_jax.trajectories import Call, FinishReason, RandomKey, Sampling, starts_with

BRANCHES_PER_CHAIN = 8  # calls of a program for each text that it reads


def sample_branches(
    policy: Policy,
    sync_shards: bool,
    params: Params,
    tokens: Int[Array, "C S"],
    lengths: Int[Array, "C"],
    chain: Int[Array, "B"],
    ints: Int[Array, "B ints"],
    floats: Float[Array, "B 3"],
) -> DecodeChunk:
    """Read each text once, then sample calls that branch off.

    Row b starts from a copy of the KV cache of text `chain[b]`, of which it attends to the first
    tokens: those of its prompt, `ints` and `floats` being a packed `SamplerState`.
    """
    texts, positions = tokens.shape
    columns = jnp.arange(positions)[None]
    inputs = PolicyInputs(
        tokens=tokens,
        positions=jnp.broadcast_to(columns, tokens.shape),
        segment_ids=(columns < lengths[:, None]).astype(jnp.int32),
    )
    cache = policy.apply(params, inputs, policy.init_cache(texts, positions)).cache
    rows = jax.tree.map(lambda x: x[chain], cache)
    steps = jnp.int32(positions)  # the program ends when no row is live
    return decode(policy, positions, 0, 0, sync_shards, params, rows, ints, floats, steps, steps)[1]


@dataclass(eq=False)
class SampledBatch:
    """The texts of a shard's part of a program, and the calls that branch off."""

    chains: list[np.ndarray] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)  # (call, chain)


class BatchSampler:
    """A program over a mesh of an engine, whose weights it is given."""

    def __init__(
        self,
        policy: Policy,
        mesh: Mesh,
        rows: int,
        positions: int,
        checksum: CallChecksum = no_checksum,
    ) -> None:
        """`rows`: calls of a program; `checksum`: of a call. Compiles at the first call."""
        self._checksum = checksum
        self._shards, self._positions = num_shards(mesh, ("data",)), positions
        self._rows = max(rows // self._shards, 1)
        self._chains = -(-self._rows // BRANCHES_PER_CHAIN)
        data, replicated = PartitionSpec("data"), PartitionSpec()
        by_row = NamedSharding(mesh, data)
        sample = functools.partial(sample_branches, policy, mesh.size > mesh.shape["data"])
        program = jax.jit(
            per_data_shard(mesh, sample, (replicated, data, data, data, data, data), data),
            in_shardings=(None, by_row, by_row, by_row, by_row, by_row),
            out_shardings=by_row,
        )
        self._program: Callable[..., DecodeChunk] = put_inputs_first(program, by_row)

    def warm_up(self, params: Params) -> None:
        """Compile the program."""
        self._run(params, [], [], (), Sampling())

    def sample(
        self,
        params: Params,
        version: int,
        prompts: Sequence[np.ndarray],
        n: int,
        sampling: Sampling,
        key: RandomKey,
    ) -> list[list[Call]]:
        """`n` calls for every prompt; call j of prompt i has the key (*key, i, j).

        Prompts that follow each other and extend each other are read as one text.
        """
        keys = [(*key, i, j) for i in range(len(prompts)) for j in range(n)]
        calls: list[Call | None] = [None] * len(keys)
        for parts in self._programs(prompts, n):
            chunk = self._run(params, parts, keys, prompts, sampling)
            for shard, part in enumerate(parts):
                for row, (c, _) in enumerate(part.calls, shard * self._rows):
                    calls[c] = self._call(chunk, row, prompts[c // n], keys[c], version, sampling)
        flat = [call for call in calls if call is not None]
        return [flat[i * n : (i + 1) * n] for i in range(len(prompts))]

    def _programs(self, prompts: Sequence[np.ndarray], n: int) -> Iterator[list[SampledBatch]]:
        """The calls, each program's shard by shard."""
        parts = [SampledBatch()]
        for i, prompt in enumerate(prompts):
            for j in range(n):
                part = parts[-1]
                extends = bool(part.chains) and starts_with(prompt, part.chains[-1])
                is_read = bool(part.chains) and starts_with(part.chains[-1], prompt)
                needs_chain = not (extends or is_read)
                if len(part.calls) == self._rows or (
                    needs_chain and len(part.chains) == self._chains
                ):
                    if len(parts) == self._shards:
                        yield parts
                        parts = []
                    part, needs_chain, extends = SampledBatch(), True, False
                    parts.append(part)
                if needs_chain:
                    part.chains.append(prompt)
                elif extends:
                    part.chains[-1] = prompt
                part.calls.append((i * n + j, len(part.chains) - 1))
        if parts[0].calls:
            yield parts

    def _run(
        self,
        params: Params,
        parts: Sequence[SampledBatch],
        keys: Sequence[RandomKey],
        prompts: Sequence[np.ndarray],
        sampling: Sampling,
    ) -> DecodeChunk:
        """One program, its results on the host."""
        tokens = np.zeros((self._shards * self._chains, self._positions), np.int32)
        lengths = np.zeros(len(tokens), np.int32)
        state = SamplerState(self._shards * self._rows)
        chain_of_row = np.zeros(len(state.ints), np.int32)
        n = len(keys) // max(len(prompts), 1)
        floats = sampling.temperature, sampling.top_p, sampling.min_p
        for shard, part in enumerate(parts):
            for c, chain in enumerate(part.chains, shard * self._chains):
                ids = chain[: self._positions]
                tokens[c, : len(ids)], lengths[c] = ids, len(ids)
            for row, (call, chain) in enumerate(part.calls, shard * self._rows):
                prompt = prompts[call // n]
                chain_of_row[row] = chain
                remaining = max(0, min(sampling.budget, self._positions - len(prompt)))
                state.set_row(
                    row,
                    prompt[-1:],
                    len(prompt) - 1,
                    remaining,
                    0,
                    sampling.top_k,
                    key_data(keys[call]),
                    sampling.stop_ids,
                    floats,
                )
        chunk = self._program(params, tokens, lengths, chain_of_row, state.ints, state.floats)
        return jax.device_get(chunk)

    def _call(
        self,
        chunk: Any,
        row: int,
        prompt: np.ndarray,
        key: RandomKey,
        version: int,
        sampling: Sampling,
    ) -> Call:
        written = slice(0, int(chunk.num_written[row]))
        action = chunk.tokens[row, written]
        reason: FinishReason = "context"
        if len(action) and int(action[-1]) in sampling.stop_ids:
            reason = "stop"
        elif len(action) == sampling.budget:
            reason = "budget"
        logp, versions = chunk.logp[row, written], np.full(len(action), version, np.int32)
        return Call(
            prompt=prompt,
            action=action,
            sampler_logp=logp,
            version=versions,
            sampling=sampling,
            finish_reason=reason,
            key=key,
            entropy=chunk.entropy[row, written],
            checksum=self._checksum(prompt, action, logp, versions, sampling.temperature),
        )

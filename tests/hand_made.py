"""What tests make by hand: calls, trajectories and groups of any shape, minute policies, meshes of some devices."""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from hypothesis import strategies as st
from jax import Array
from jax.sharding import AxisType, Mesh

from agentrl_jax import rows
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.policy import Cache, Inputs, Output, Policy
from agentrl_jax.rendering import Renderer
from agentrl_jax.rows import Evidence, Row, collate, rows_of
from agentrl_jax.trajectories import Call, Group, Key, Sampling, Trajectory, Turn

VOCABULARY = 24

# New prompt tokens, action tokens, whether the prompt is rewritten, reward; trajectories and groups are lists of turns.
TurnShape = tuple[int, int, bool, float]
turn_shapes = st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans(), st.floats(-5, 5, width=16))
batch_shapes = st.lists(st.lists(st.lists(turn_shapes, max_size=4), min_size=1, max_size=4), max_size=4)


Numbers = Sequence[float] | np.ndarray


def make_call(
    prompt: Numbers, action: Numbers, temperature: float = 1.0, logp: Numbers | None = None, version: Numbers | None = None
) -> Call:
    """A sampled call; log-probs and versions are 0 unless given."""
    zeros = np.zeros(len(action))
    return Call(
        np.asarray(prompt, np.int32),
        np.asarray(action, np.int32),
        np.asarray(zeros if logp is None else logp, np.float32),
        np.asarray(zeros if version is None else version, np.int32),
        Sampling(temperature=temperature),
        "stop",
    )


def make_turn(calls: Sequence[Call], reward: float = 0.0, terminated: bool = False) -> Turn:
    return Turn(tuple(calls), assistant("a"), (user("o"),), float(reward), terminated=terminated)


def make_trajectory(*turns: Turn) -> Trajectory:
    return Trajectory((user("go"),), turns)


def grown(shape: Sequence[TurnShape], rng: np.random.Generator, vocabulary: int = VOCABULARY) -> Trajectory:
    """A random trajectory of a shape: each prompt extends the last call, unless it is rewritten."""
    turns, so_far = [], np.zeros(0, np.int32)
    for i, (new, written, rewritten, reward) in enumerate(shape):
        start = np.zeros(0, np.int32) if rewritten else so_far
        prompt = np.concatenate([start, rng.integers(0, vocabulary, new, np.int32)])
        call = make_call(
            prompt,
            rng.integers(0, vocabulary, written, np.int32),
            float(rng.choice([0.5, 1.0, 1.5])),
            logp=-rng.random(written, np.float32),
            version=rng.integers(0, 3, written, np.int32),
        )
        so_far = call.ids
        turns.append(make_turn([call], reward, terminated=i == len(shape) - 1))
    return make_trajectory(*turns)


def grown_groups(shapes: Sequence[Sequence[Sequence[TurnShape]]], seed: int = 0) -> list[Group]:
    rng = np.random.default_rng(seed)
    return [Group(f"task {i}", tuple(grown(shape, rng) for shape in group)) for i, group in enumerate(shapes)]


def whole(groups: Sequence[Group]) -> list[Trajectory]:
    """The trajectories that have turns, in order."""
    return [trajectory for group in groups for trajectory in group.trajectories if trajectory.turns]


def evidence_of(groups: Sequence[Group], *invented: str, seed: int = 0, **known: np.ndarray) -> Evidence:
    """The groups' evidence; what models say of each token is given by name, or invented where only its name is."""
    found, rng = rows.evidence_of(groups, collate(groups)), np.random.default_rng(seed)
    known |= {name: rng.normal(size=len(found.token_row)) for name in invented}
    return dataclasses.replace(found, **known)


def told(groups: Sequence[Group], **facts: Any) -> list[Group]:
    """The groups with more in every turn's info: `name=lambda turn, place: value`, places counted in a trajectory."""

    def of(trajectory: Trajectory) -> Trajectory:
        turns = (
            dataclasses.replace(turn, info={**turn.info, **{name: value(turn, place) for name, value in facts.items()}})
            for place, turn in enumerate(trajectory.turns)
        )
        return trajectory.replace(turns=tuple(turns))

    return [dataclasses.replace(group, trajectories=tuple(map(of, group.trajectories))) for group in groups]


def minute_policy(vocabulary: int = VOCABULARY, **fields: Any) -> Decoder:
    shape = {"layers": 2, "width": 16, "hidden": 32, "heads": 2, "kv_heads": 1, "head_size": 8, **fields}
    return DecoderConfig(**shape).build(vocabulary)


@dataclasses.dataclass(frozen=True)
class Averaging:
    """A policy that compiles at once: a hidden state is an MLP of the mean embedding of its segment so far."""

    vocab_size: int = VOCABULARY
    width: int = 8

    def init(self, key: Array) -> Any:
        first, second = jax.random.split(key)
        return {
            "embedding": jax.random.normal(first, (self.vocab_size, self.width)),
            "kernel": jax.random.normal(second, (self.width, self.width)),
        }

    def axes(self) -> Any:
        return {"embedding": ("vocab", "embed"), "kernel": ("embed", "hidden")}

    def trainable(self) -> Any:
        return {"embedding": True, "kernel": True}

    def apply(self, params: Any, inputs: Inputs, cache: Cache | None = None, key: Array | None = None) -> Output:
        segments, positions = jnp.asarray(inputs.segment_ids), jnp.asarray(inputs.positions)
        seen = (segments[:, :, None] == segments[:, None]) & (positions[:, :, None] >= positions[:, None])
        seen = seen.astype(jnp.float32)
        share = seen / jnp.maximum(seen.sum(-1, keepdims=True), 1.0)
        x = params["embedding"][inputs.tokens]
        return Output(hidden=x + jnp.tanh(jnp.einsum("BTS,BSD,DH->BTH", share, x, params["kernel"])))

    def logits(self, params: Any, hidden: Array) -> Array:
        return hidden @ params["embedding"].T

    def init_cache(self, rows: int, positions: int) -> Cache:
        return Cache(keys=(), values=())

    def unstack(self, params: Any) -> Any:
        return params


def same_leaves(a: Any, b: Any) -> bool:
    """Whether two trees hold the same numbers, in the same order."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def logp_alone(policy: Policy, params: Any, row: Row, length: int = 32) -> np.ndarray:
    """Log-probs of a row's tokens, computed without packing, chunks or the learner; nan where nothing comes before."""
    tokens = jnp.zeros((1, length), jnp.int32).at[0, : len(row)].set(row.tokens)
    inputs = Inputs(tokens=tokens, positions=jnp.arange(length)[None], segment_ids=(jnp.arange(length) < len(row)).astype(jnp.int32)[None])
    logits = np.asarray(_logits(policy, params, inputs), np.float64)[: len(row) - 1] / row.temperature[1:, None]
    return np.append(np.nan, scipy.special.log_softmax(logits, axis=-1)[np.arange(len(row) - 1), row.tokens[1:]])


@functools.partial(jax.jit, static_argnums=0)
def _logits(policy: Policy, params: Any, inputs: Inputs) -> Array:
    return policy.logits(params, policy.apply(params, inputs).hidden[0])


def sampled_by(policy: Policy, params: Any, groups: Sequence[Group], gap: float = 0.0) -> list[Group]:
    """The groups with the log-probs that the policy gives each action, or with noise of this size on them."""
    rng = np.random.default_rng(1)

    def scored(trajectory: Trajectory) -> Trajectory:
        logp = iter(np.concatenate([np.zeros(0), *(logp_alone(policy, params, row)[row.action_mask] for row in rows_of(trajectory))]))
        turns = []
        for turn in trajectory.turns:
            calls = []
            for call in turn.calls:
                own = np.array([next(logp) for _ in call.action]) + gap * rng.normal(size=len(call.action))
                calls.append(dataclasses.replace(call, sampler_logp=own.astype(np.float32)))
            turns.append(dataclasses.replace(turn, calls=tuple(calls)))
        return trajectory.replace(turns=tuple(turns))

    return [dataclasses.replace(group, trajectories=tuple(map(scored, group.trajectories))) for group in groups]


def mesh_of(data: int = 1, fsdp: int = 1, expert: int = 1, tensor: int = 1) -> Mesh:
    """A mesh over the first devices."""
    sizes = (data, fsdp, expert, tensor)
    devices = np.asarray(jax.devices()[: math.prod(sizes)]).reshape(sizes)
    return Mesh(devices, ("data", "fsdp", "expert", "tensor"), axis_types=(AxisType.Auto,) * 4)


@contextlib.contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """A list that grows by one entry for each program that XLA compiles meanwhile."""
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def alive(pid: int) -> bool:
    """Whether there is such a process; one that has ended and that nobody has asked for yet is none."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


class ScriptedEngine:
    """Implements `Engine`: writes one text to every prompt, or nothing after `last` calls, and remembers what is held."""

    places = 4

    def __init__(self, renderer: Renderer, text: str, last: int | None = None) -> None:
        self._action, self._last = renderer.action_ids(assistant(text)), last
        self.submitted = 0
        self.prompts: list[np.ndarray] = []
        self.held: list[Call] = []

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Any] = ()) -> Future[Call]:
        full = self._last is not None and self.submitted >= self._last
        self.submitted += 1
        self.prompts.append(ids)
        if parent in self.held:
            self.held.remove(parent)
        call = dataclasses.replace(make_call(ids, self._action[:0] if full else self._action), sampling=sampling, key=key, parent=parent)
        self.held.append(call)
        future: Future[Call] = Future()
        future.set_result(call)
        return future

    def release(self, call: Call) -> None:
        if call in self.held:
            self.held.remove(call)

    def publish(self, params: Any, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...

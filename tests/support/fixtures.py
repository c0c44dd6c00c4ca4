"""Hand-made calls, trajectories and groups of any shape, tiny policies, small meshes."""

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
from jax.sharding import AxisType, Mesh, SingleDeviceSharding
from support.fake_engines import FakeEngine

from agentrl_jax.learner import sequences
from agentrl_jax.learner.sequences import CreditInputs, TrainingSequence, collate, sequences_of
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.policy import KVCache, Policy, PolicyInputs, PolicyOutput
from agentrl_jax.renderer import Renderer
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Trajectory, Turn

VOCAB_SIZE = 24

# (new prompt tokens, action tokens, whether the prompt is rewritten, reward); a trajectory's shape
# is a list of these, a group's a list of lists.
TurnShape = tuple[int, int, bool, float]
turn_shapes = st.tuples(
    st.integers(1, 4), st.integers(1, 4), st.booleans(), st.floats(-5, 5, width=16)
)
batch_shapes = st.lists(
    st.lists(st.lists(turn_shapes, max_size=4), min_size=1, max_size=4), max_size=4
)


FloatVector = Sequence[float] | np.ndarray


def make_call(
    prompt: FloatVector,
    action: FloatVector,
    temperature: float = 1.0,
    logp: FloatVector | None = None,
    version: FloatVector | None = None,
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


def random_trajectory(
    shape: Sequence[TurnShape], rng: np.random.Generator, vocabulary: int = VOCAB_SIZE
) -> Trajectory:
    """A random trajectory of a shape: each prompt extends the last call, unless it is rewritten."""
    turns, context = [], np.zeros(0, np.int32)
    for i, (prompt_tokens, action_tokens, is_rewritten, reward) in enumerate(shape):
        start = np.zeros(0, np.int32) if is_rewritten else context
        prompt = np.concatenate([start, rng.integers(0, vocabulary, prompt_tokens, np.int32)])
        call = make_call(
            prompt,
            rng.integers(0, vocabulary, action_tokens, np.int32),
            float(rng.choice([0.5, 1.0, 1.5])),
            logp=-rng.random(action_tokens, np.float32),
            version=rng.integers(0, 3, action_tokens, np.int32),
        )
        context = call.ids
        turns.append(make_turn([call], reward, terminated=i == len(shape) - 1))
    return make_trajectory(*turns)


def random_groups(shapes: Sequence[Sequence[Sequence[TurnShape]]], seed: int = 0) -> list[Group]:
    rng = np.random.default_rng(seed)
    return [
        Group(f"task {i}", tuple(random_trajectory(shape, rng) for shape in group))
        for i, group in enumerate(shapes)
    ]


def trajectories_with_turns(groups: Sequence[Group]) -> list[Trajectory]:
    """The trajectories that have turns, in order."""
    return [trajectory for group in groups for trajectory in group.trajectories if trajectory.turns]


def make_credit_inputs(
    groups: Sequence[Group], *random_columns: str, seed: int = 0, **columns: np.ndarray
) -> CreditInputs:
    """The groups' credit inputs; the columns are given, or random where only their names are."""
    inputs, rng = sequences.make_credit_inputs(groups, collate(groups)), np.random.default_rng(seed)
    columns |= {name: rng.normal(size=len(inputs.token_sequence)) for name in random_columns}
    return dataclasses.replace(inputs, **columns)


def with_info(groups: Sequence[Group], **info_fields: Any) -> list[Group]:
    """The groups with additional info fields in every turn: `name=lambda turn, index: value`."""

    def extend_info(trajectory: Trajectory) -> Trajectory:
        turns = []
        for i, turn in enumerate(trajectory.turns):
            fields = {name: value(turn, i) for name, value in info_fields.items()}
            turns.append(dataclasses.replace(turn, info={**turn.info, **fields}))
        return trajectory.replace(turns=tuple(turns))

    return [
        dataclasses.replace(group, trajectories=tuple(map(extend_info, group.trajectories)))
        for group in groups
    ]


def tiny_policy(vocabulary: int = VOCAB_SIZE, **fields: Any) -> Decoder:
    shape = {
        "layers": 2,
        "width": 16,
        "hidden": 32,
        "heads": 2,
        "kv_heads": 1,
        "head_size": 8,
        **fields,
    }
    return DecoderConfig(**shape).build(vocabulary)


@dataclasses.dataclass(frozen=True)
class MeanEmbeddingPolicy:
    """A policy that compiles fast: an MLP of the mean embedding of the segment so far."""

    vocab_size: int = VOCAB_SIZE
    width: int = 8
    supports_branches = False

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

    def apply(
        self,
        params: Any,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Array | None = None,
    ) -> PolicyOutput:
        segments, positions = jnp.asarray(inputs.segment_ids), jnp.asarray(inputs.positions)
        seen = (segments[:, :, None] == segments[:, None]) & (
            positions[:, :, None] >= positions[:, None]
        )
        seen = seen.astype(jnp.float32)
        share = seen / jnp.maximum(seen.sum(-1, keepdims=True), 1.0)
        x = params["embedding"][inputs.tokens]
        return PolicyOutput(
            hidden=x + jnp.tanh(jnp.einsum("BTS,BSD,DH->BTH", share, x, params["kernel"]))
        )

    def logits(self, params: Any, hidden: Array) -> Array:
        return hidden @ params["embedding"].T

    def init_cache(self, rows: int, positions: int) -> KVCache:
        return KVCache(keys=(), values=())

    def unstack(self, params: Any) -> Any:
        return params


@dataclasses.dataclass
class MeanEmbeddingConfig:
    """A `PolicyConfig`."""

    seed: int = 5
    width: int = 8
    vocabulary_multiple: int = 1  # the number of tokens is rounded up to a multiple of it

    def build(self, vocab_size: int) -> MeanEmbeddingPolicy:
        padded = math.ceil(vocab_size / self.vocabulary_multiple) * self.vocabulary_multiple
        return MeanEmbeddingPolicy(padded, self.width)

    def initial_params(self, policy: Any, key: Any, mesh: Any) -> Any:
        return policy.init(jax.random.key(self.seed))


def trees_equal(a: Any, b: Any) -> bool:
    """Whether two trees hold the same numbers, in the same order."""
    return all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def unpacked_logp(
    policy: Policy, params: Any, sequence: TrainingSequence, length: int = 32
) -> np.ndarray:
    """Log-probs of a sequence without packing, chunks or the learner; nan for the first token."""
    tokens = jnp.zeros((1, length), jnp.int32).at[0, : len(sequence)].set(sequence.tokens)
    inputs = PolicyInputs(
        tokens=tokens,
        positions=jnp.arange(length)[None],
        segment_ids=(jnp.arange(length) < len(sequence)).astype(jnp.int32)[None],
    )
    logits = (
        np.asarray(_logits(policy, params, inputs), np.float64)[: len(sequence) - 1]
        / sequence.temperature[1:, None]
    )
    return np.append(
        np.nan,
        scipy.special.log_softmax(logits, axis=-1)[
            np.arange(len(sequence) - 1), sequence.tokens[1:]
        ],
    )


@functools.partial(jax.jit, static_argnums=0)
def _logits(policy: Policy, params: Any, inputs: PolicyInputs) -> Array:
    return policy.logits(params, policy.apply(params, inputs).hidden[0])


def with_sampler_logp(
    policy: Policy, params: Any, groups: Sequence[Group], noise_scale: float = 0.0
) -> list[Group]:
    """The groups with the policy's log-probs of each action, plus noise of a scale."""
    rng = np.random.default_rng(1)

    def score(trajectory: Trajectory) -> Trajectory:
        logps = [unpacked_logp(policy, params, x)[x.action_mask] for x in sequences_of(trajectory)]
        token_logp = iter(np.concatenate([np.zeros(0), *logps]))
        turns = []
        for turn in trajectory.turns:
            calls = []
            for call in turn.calls:
                logp = np.array([next(token_logp) for _ in call.action])
                logp = logp + noise_scale * rng.normal(size=len(call.action))
                calls.append(dataclasses.replace(call, sampler_logp=logp.astype(np.float32)))
            turns.append(dataclasses.replace(turn, calls=tuple(calls)))
        return trajectory.replace(turns=tuple(turns))

    return [
        dataclasses.replace(group, trajectories=tuple(map(score, group.trajectories)))
        for group in groups
    ]


def device_mesh(data: int = 1, fsdp: int = 1, expert: int = 1, tensor: int = 1) -> Mesh:
    """A mesh of these sizes over the first devices."""
    sizes = (data, fsdp, expert, tensor)
    devices = np.asarray(jax.devices()[: math.prod(sizes)]).reshape(sizes)
    return Mesh(devices, ("data", "fsdp", "expert", "tensor"), axis_types=(AxisType.Auto,) * 4)


def on_first_device(tree: Any) -> Any:
    """Shardings that put every array of a tree on the first device."""
    return jax.tree.map(lambda _: SingleDeviceSharding(jax.devices()[0]), tree)


@contextlib.contextmanager
def record_compilations() -> Iterator[list[str]]:
    """A list that gets an entry for each program that XLA compiles in the block."""
    compiled: list[str] = []

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def is_process_alive(pid: int) -> bool:
    """Whether a process with this id is running; a zombie is not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()


class ScriptedEngine(FakeEngine):
    """An `Engine` that writes one text to every prompt, or nothing after `max_calls` calls.

    It records its prompts, and the calls that are neither extended nor released.
    """

    num_slots = 4

    def __init__(self, renderer: Renderer, text: str, max_calls: int | None = None) -> None:
        self._action, self._max_calls = renderer.action_ids(assistant(text)), max_calls
        self.num_submitted = 0
        self.prompts: list[np.ndarray] = []
        self.held_calls: list[Call] = []

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[Any] = (),
    ) -> Future[Call]:
        is_exhausted = self._max_calls is not None and self.num_submitted >= self._max_calls
        self.num_submitted += 1
        self.prompts.append(ids)
        if parent in self.held_calls:
            self.held_calls.remove(parent)
        call = dataclasses.replace(
            make_call(ids, self._action[:0] if is_exhausted else self._action),
            sampling=sampling,
            key=key,
            parent=parent,
        )
        self.held_calls.append(call)
        future: Future[Call] = Future()
        future.set_result(call)
        return future

    def release(self, call: Call) -> None:
        if call in self.held_calls:
            self.held_calls.remove(call)

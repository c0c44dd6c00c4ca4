"""A frozen tower's states of images, computed once, give the updates of batches with patches."""

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
import pytest
from support.fixtures import record_compilations
from support.image_sequences import mixed_episodes, sequences_of_all
from support.vision_policies import VOCAB_SIZE, policy_and_params, processor_of, vision_config

from agentrl_jax.algorithms.methods import grpo, ppo
from agentrl_jax.algorithms.offline.behavior_cloning import (
    BehaviorCloningBatch,
    BehaviorCloningConfig,
)
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.image_format import EncodedImages, PackedImages
from agentrl_jax.learner.image_rows import ImagePacker, ImageRows
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.packing import Batch, pack
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.vision.policy import VISION
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.pool import InlinePool

LENGTH, PATCHES = 64, 128
BOTH = ("tower", "projector")


def image_rows(policy: Any, feature_bytes: int = 2**20) -> ImageRows:
    base = getattr(policy, "base", policy)
    return ImageRows(processor_of(base), PATCHES, feature_bytes=feature_bytes)


def batch_of(packer: ImagePacker, sequences: Any) -> Batch:
    layout = pack(sequences, LENGTH, 8, packer)
    batch = layout.to_batch(np.zeros((layout.num_bins, LENGTH), np.float32))
    weight = np.where(batch.action_mask, np.random.default_rng(0).random(batch.weight.shape), 0)
    return dataclasses.replace(batch, weight=(weight / weight.sum()).astype(np.float32))


def updated(policy: Any, params: Any, batch: Batch, **axes: int) -> tuple[Any, float]:
    """The parameters after a step of gradient descent, and the loss before it."""
    mesh = make_mesh(MeshConfig(**axes), jax.devices()[: int(np.prod(list(axes.values())))])
    learner = Learner(policy, optax.sgd(1.0), lambda logp, entropy, batch: (-logp, {}), mesh)
    state = learner.init(jax.random.key(0), params)
    state, metrics = learner.update(state, [BehaviorCloningBatch(batch=batch)])
    return jax.device_get(state.params), float(metrics["loss"])


def assert_equal_updates(policy: Any, params: Any, **axes: int) -> None:
    episodes = mixed_episodes(getattr(policy, "base", policy))
    sequences = sequences_of_all(episodes)
    with_patches = ImagePacker(image_rows(policy, 0), policy)
    encoded = ImagePacker(image_rows(policy), policy)
    encoded.load(params)
    batches = batch_of(with_patches, sequences), batch_of(encoded, sequences)
    assert isinstance(batches[0].images, PackedImages)
    assert isinstance(batches[1].images, EncodedImages)
    (expected, loss), (actual, encoded_loss) = (updated(policy, params, x, **axes) for x in batches)
    assert encoded_loss == pytest.approx(loss, abs=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), expected, actual)
    moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), expected, jax.device_get(params))
    assert any(jax.tree.leaves(moved))
    batch_of(encoded, sequences[::-1])
    parts = {part.url for trajectory, _ in episodes for x in trajectory.calls for part in x.images}
    assert encoded.num_encoded == len(parts)  # once each


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("kind", "frozen"),
    [
        ("Qwen3-VL", ("tower",)),
        ("Qwen3-VL", BOTH),
        pytest.param("Qwen2.5-VL", ("tower",), marks=SLOW),
        pytest.param("Qwen2.5-VL", BOTH, marks=SLOW),
        pytest.param("Gemma 3", ("tower",), marks=SLOW),
        pytest.param("Gemma 3", BOTH, marks=SLOW),
    ],
)
def test_updates_are_those_of_batches_with_patches(kind: str, frozen: tuple[str, ...]):
    assert_equal_updates(*policy_and_params(kind, frozen), data=1)


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [("tower",), BOTH])
def test_sharded_weights_are_gathered(frozen: tuple[str, ...]):
    policy, params = policy_and_params("Qwen3-VL", frozen)
    axes = {"data": 2, "fsdp": 2, "tensor": 2}
    mesh = make_mesh(MeshConfig(**axes), jax.devices())
    state = Learner(policy, optax.sgd(1.0), lambda *_: (_[0], {}), mesh).init(
        jax.random.key(0), params
    )
    assert_equal_updates(policy, state.params, **axes)


@pytest.mark.parametrize(
    ("targets", "projected"),
    [(("query", "down"), True), (("vision.qkv", "query"), None)],
)
def test_adapters_of_the_tower_decide(targets: tuple[str, ...], projected: bool | None):
    config = LoraConfig(vision_config("Qwen3-VL"), rank=2, targets=targets)
    policy = config.build(VOCAB_SIZE)
    tower = policy.frozen_tower()
    assert (tower and tower.projected) == projected
    if tower is not None:
        params = policy.init(jax.random.key(0))
        noise = jax.tree.map(lambda x: x + 0.02, params["adapters"])
        assert_equal_updates(policy, params | {"adapters": noise}, data=1)


@pytest.mark.parametrize("feature_bytes", [0, 2**20])
def test_a_tower_that_is_trained_gets_patches(feature_bytes: int):
    for frozen in ((), ("projector",), ("decoder",)):
        policy, _ = policy_and_params("Qwen3-VL", frozen)
        assert policy.frozen_tower() is None
        packer = ImagePacker(image_rows(policy, feature_bytes), policy)
        assert isinstance(pack([], LENGTH, 1, packer).to_batch(np.zeros((1, 64))).images, (
            PackedImages
        ))  # fmt: skip


def stepped(method: Any, kind: str, frozen: tuple[str, ...]) -> tuple[Any, Any]:
    """The parameters after two steps of a method on the same groups, and its algorithm."""
    policy, params = policy_and_params(kind, frozen)
    mesh = make_mesh(MeshConfig(data=1), jax.devices()[:1])
    algorithm = method.build(policy, mesh, 10)
    state = algorithm.init(jax.random.key(0), params)
    trajectories = [trajectory for trajectory, _ in mixed_episodes(policy)]
    rewarded = [
        dataclasses.replace(x, turns=(*x.turns[:-1], dataclasses.replace(x.turns[-1], reward=r)))
        for x, r in zip(trajectories, (0.0, 1.0, 0.5, 2.0, 0.0, 1.0))
    ]
    groups = [Group("a", tuple(rewarded[:3])), Group("b", tuple(rewarded[3:]))]
    runtime = Runtime({}, {}, InlinePool())
    for _ in range(2):
        state, _ = algorithm.step(state, groups, runtime)
    runtime.close()
    return jax.device_get(state.params), algorithm


@pytest.mark.slow
@pytest.mark.parametrize(("name", "frozen"), [("grpo", BOTH), ("cloning", ("tower",))])
def test_steps_of_methods_are_equal(name: str, frozen: tuple[str, ...]):
    policy, params = policy_and_params("Qwen3-VL", frozen)
    results = []
    for feature_bytes in (0, 2**20):
        settings: dict[str, Any] = {
            "optimizer": AdamWConfig(1e-3),
            "bin_length": LENGTH,
            "microbatch": 4,
            "images": image_rows(policy, feature_bytes),
        }
        method = (
            grpo(rescore=True, reference=True, **settings)
            if name == "grpo"
            else BehaviorCloningConfig(**settings)
        )
        results.append(stepped(method, "Qwen3-VL", frozen)[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), *results)
    tower = [name for name in params[VISION] if not name.startswith(("projector", "deepstack"))]
    for tree in results:
        for part in tower:
            jax.tree.map(np.testing.assert_array_equal, tree[VISION][part], params[VISION][part])


@pytest.mark.slow
def test_a_critic_with_a_trunk_of_its_own_gets_patches():
    policy, _ = policy_and_params("Qwen3-VL", BOTH)
    method = ppo(
        HeadConfig(), bin_length=LENGTH, microbatch=4, images=image_rows(policy),
        optimizer=AdamWConfig(1e-3),
    )  # fmt: skip
    _, algorithm = stepped(method, "Qwen3-VL", BOTH)
    batch = algorithm.learner_and_padding_batch()[1].batch
    assert isinstance(batch.images, PackedImages)


def test_nothing_recompiles_with_other_images():
    policy, params = policy_and_params("Qwen3-VL", BOTH)
    packer = ImagePacker(image_rows(policy), policy)
    packer.load(params)
    batch_of(packer, sequences_of_all(mixed_episodes(policy, 6)))
    with record_compilations() as compiled:
        batch_of(packer, sequences_of_all(mixed_episodes(policy, 3)))
    assert compiled == []

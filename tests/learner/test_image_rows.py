"""Images in training: packed beside tokens, with gradients through projector and tower."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.fixtures import record_compilations
from support.image_sequences import (
    extended,
    mixed_episodes,
    random_call,
    sequences_of_all,
    trajectory_of,
)
from support.vision_policies import (
    KINDS,
    VOCAB_SIZE,
    model_image,
    policy_and_params,
    processor_of,
    reference_logp,
)

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.errors import UserError
from agentrl_jax.image_format import PackedImages
from agentrl_jax.learner.chunked_logp import token_logp
from agentrl_jax.learner.image_rows import ImagePacker, ImageRows
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.packing import Batch, pack, pack_branches, split_bins
from agentrl_jax.learner.sequences import TrainingSequence, sequences_of
from agentrl_jax.learner.unique_sequences import unique_sequences
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.vision.policy import VISION

LENGTH, PATCHES = 64, 128


def packer_of(policy: Any) -> ImagePacker:
    return ImagePacker(ImageRows(processor_of(policy), PATCHES, feature_bytes=0), policy)


def batch_of(policy: Any, sequences: Sequence[TrainingSequence], multiple: int = 1) -> Batch:
    layout = pack(sequences, LENGTH, multiple, packer_of(policy))
    shape = layout.num_bins, LENGTH
    mask = layout.to_batch(np.zeros(shape, np.float32)).action_mask
    weight = np.where(mask, np.random.default_rng(0).random(shape), 0)
    return layout.to_batch((weight / weight.sum()).astype(np.float32))


@pytest.mark.parametrize(
    "kind",
    ["Qwen3-VL", *(pytest.param(x, marks=pytest.mark.slow) for x in KINDS if x != "Qwen3-VL")],
)
def test_packed_log_probs_are_those_of_each_sequence_alone(kind: str):
    policy, params = policy_and_params(kind)
    episodes = mixed_episodes(policy, 4)
    sequences = sequences_of_all(episodes)
    assert len(sequences) == len(episodes)
    layout = pack(sequences, LENGTH, 1, packer_of(policy))
    assert layout.num_bins < len(sequences)  # some share a row
    batch = layout.to_batch(np.zeros((layout.num_bins, LENGTH), np.float32))
    logp, _ = jax.jit(functools.partial(token_logp, policy))(params, batch)
    for i, (trajectory, images) in enumerate(episodes):
        for call, prompt_images in zip(trajectory.calls, images):
            positions = np.arange(len(call.prompt), call.length)
            rows, columns = layout.packed_coordinates(np.full(len(positions), i), positions)
            np.testing.assert_allclose(
                np.asarray(logp)[rows, columns],
                reference_logp(policy, params, call, prompt_images),
                atol=2e-5,
            )


@pytest.mark.parametrize("kind", ["Qwen3-VL", pytest.param("Gemma 3", marks=pytest.mark.slow)])
def test_gradients_reach_projector_and_tower(kind: str):
    """Central differences along the gradient of all of the tower's weights."""
    policy, params = policy_and_params(kind)
    batch = batch_of(policy, sequences_of_all(mixed_episodes(policy)))

    @jax.jit
    def loss(tower: Any) -> jax.Array:
        logp, _ = token_logp(policy, params | {VISION: tower}, batch)
        return -jnp.sum(jnp.where(jnp.asarray(batch.action_mask), batch.weight * logp, 0.0))

    gradient = jax.grad(loss)(params[VISION])
    flat = jax.tree.leaves(gradient)
    # A key's bias shifts all scores of a query alike, so its gradient is 0 but for rounding.
    assert sum(float(jnp.abs(x).max()) < 1e-7 for x in flat) <= 1
    norm = float(optax.tree_utils.tree_norm(gradient))
    step = 1e-2 / norm
    plus, minus = (
        float(loss(jax.tree.map(lambda p, g, s=sign: p + s * step * g, params[VISION], gradient)))
        for sign in (1, -1)
    )
    np.testing.assert_allclose((plus - minus) / (2 * step), norm**2, rtol=3e-2)


@pytest.mark.parametrize("frozen", [("tower",), ("tower", "projector")])
def test_frozen_parts_stay(frozen: tuple[str, ...]):
    policy, params = policy_and_params("Qwen3-VL", frozen)
    learner = learner_on(policy, 1)
    batch = batch_of(policy, sequences_of_all(mixed_episodes(policy)))
    state, _ = learner.update(
        learner.init(jax.random.key(0), params), [BehaviorCloningBatch(batch=batch)]
    )
    changed = jax.tree.map(lambda a, b: not np.array_equal(a, b), state.params, params)
    of_tower = changed[VISION]
    projectors = {k: v for k, v in of_tower.items() if k.startswith(("projector", "deepstack"))}
    tower = {k: v for k, v in of_tower.items() if k not in projectors}
    assert not any(jax.tree.leaves(tower))
    assert any(jax.tree.leaves(projectors)) == ("projector" not in frozen)
    assert any(jax.tree.leaves({k: v for k, v in changed.items() if k != VISION}))


def learner_on(policy: Any, data: int, **axes: int) -> Learner:
    size = data * int(np.prod(list(axes.values()) or [1]))
    mesh = make_mesh(MeshConfig(data=data, **axes), jax.devices()[:size])
    return Learner(policy, optax.sgd(0.5), lambda logp, entropy, batch: (-logp, {}), mesh)


@pytest.mark.parametrize("kind", ["Qwen3-VL", pytest.param("Gemma 3", marks=pytest.mark.slow)])
def test_a_mixed_batch_on_eight_devices_equals_one_device(kind: str):
    """Text and image episodes, microbatches of 8 rows, with data, fsdp and tensor axes."""
    policy, params = policy_and_params(kind)
    sequences = [x for e in range(3) for x in sequences_of_all(mixed_episodes(policy, 6 + e))]
    batch = batch_of(policy, sequences, 8)
    results = []
    for axes in ({"data": 1}, {"data": 8}, {"data": 2, "fsdp": 2, "tensor": 2}):
        learner = learner_on(policy, **axes)
        state = learner.init(jax.random.key(0), params)
        microbatches = [BehaviorCloningBatch(batch=x) for x in split_bins(batch, 8)]
        state, metrics = learner.update(state, microbatches)
        results.append((jax.device_get(state.params), float(metrics["loss"])))
    for other, loss in results[1:]:
        assert abs(loss - results[0][1]) < 1e-5
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), results[0][0], other)


def test_nothing_recompiles_with_other_images():
    policy, params = policy_and_params("Qwen3-VL")
    learner = learner_on(policy, 1)
    state = learner.init(jax.random.key(0), params)

    def microbatches(count: int) -> list[BehaviorCloningBatch]:
        batch = batch_of(policy, sequences_of_all(mixed_episodes(policy, count)), 4)
        return [BehaviorCloningBatch(batch=x) for x in split_bins(batch, 4)]

    state, _ = learner.update(state, microbatches(5))
    with record_compilations() as compiled:
        for count in (1, 2, 7):
            state, _ = learner.update(state, microbatches(count))
    assert compiled == []


def test_the_patches_of_a_row_are_bounded():
    """Each sequence has an image of 64 patches: two share a row, although all tokens would fit."""
    policy, _ = policy_and_params("Qwen3-VL")
    image = model_image(policy, 32, 32, 1)
    sequences = [sequences_of(trajectory_of(random_call([1, image, 1], i)[0]))[0] for i in range(4)]
    assert image.num_patches == 64 and sum(map(len, sequences)) < 100
    layout = pack(sequences, 200, 1, packer_of(policy))
    assert layout.num_bins == 2
    batch = layout.to_batch(np.zeros((2, 200), np.float32))
    assert isinstance(batch.images, PackedImages) and batch.images.patches.shape[:2] == (2, PATCHES)
    assert (np.asarray(batch.image_index) >= 0).sum() == 4 * 16


def test_sequences_with_other_images_are_not_equal():
    policy, _ = policy_and_params("Qwen3-VL")
    sequences = [
        sequences_of(trajectory_of(random_call([2, model_image(policy, 12, 12, i), 2], 0)[0]))[0]
        for i in (1, 2, 1)
    ]
    assert sequences[0].tokens.tolist() == sequences[1].tokens.tolist()
    unique, index = unique_sequences(sequences)
    assert len(unique) == 2 and index.tolist() == [0, 1, 0]


def test_a_call_with_another_image_starts_a_new_sequence():
    policy, _ = policy_and_params("Qwen3-VL")
    first, images = random_call([2, model_image(policy, 12, 12, 1), 2], 0)
    second, _ = extended(first, images, [3], 1)
    other = dataclasses.replace(second, images=(model_image(policy, 12, 12, 2).part,), parent=None)
    assert len(sequences_of(trajectory_of(first, second))) == 1
    assert len(sequences_of(trajectory_of(first, other))) == 2


def test_images_that_cannot_be_trained_are_refused():
    policy, _ = policy_and_params("Qwen3-VL")
    call, _ = random_call([2, model_image(policy, 12, 12, 1), 2], 0)
    sequences = sequences_of(trajectory_of(call))
    with pytest.raises(UserError, match="which this algorithm does not train"):
        pack(sequences, LENGTH, 1)
    with pytest.raises(UserError, match="cannot share a prompt"):
        pack_branches(sequences, 4, LENGTH, 2, 1)
    small = ImagePacker(ImageRows(processor_of(policy), 8), policy)
    with pytest.raises(UserError, match="have 16 patches but a batch row holds 8"):
        pack(sequences, LENGTH, 1, small)
    short = dataclasses.replace(call, image_spans=((2, 5),))
    with pytest.raises(UserError, match="an image has 4 tokens here and 3 in its prompt"):
        pack(sequences_of(trajectory_of(short)), LENGTH, 1, packer_of(policy))
    with pytest.raises(UserError, match="multiple of 4, not 6"):
        ImagePacker(ImageRows(processor_of(policy), 6), policy)
    other = processor_of(policy_and_params("Gemma 3")[0])
    with pytest.raises(UserError, match="give its agent and its algorithm"):
        ImagePacker(ImageRows(other, 8), policy)
    blind: Any = DecoderConfig(layers=1, width=8, hidden=8, heads=2).build(VOCAB_SIZE)
    with pytest.raises(UserError, match="the policy sees no images"):
        ImagePacker(ImageRows(other, 8), blind)

"""Videos from an engine to training: log-probs of sampler and learner agree, and gradients flow."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.fixtures import record_compilations
from support.image_sequences import sequences_of_all, trajectory_of
from support.vision_policies import (
    model_image,
    model_video,
    policy_and_params,
    processor_of,
    prompt_of,
    reference_logp,
)

from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.learner.chunked_logp import token_logp
from agentrl_jax.learner.image_rows import ImagePacker, ImageRows
from agentrl_jax.learner.packing import pack
from agentrl_jax.models.vision.policy import VISION
from agentrl_jax.trajectories import Call, Sampling

LENGTH, PATCHES = 64, 192


@pytest.fixture(
    scope="module", params=["Qwen2.5-VL", pytest.param("Qwen3-VL", marks=pytest.mark.slow)]
)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def engine(kind: str) -> Iterator[LocalEngine]:
    policy, params = policy_and_params(kind)
    config = EngineConfig(
        rows=4, positions=96, prefill_chunk=4, min_decode_steps=2, max_decode_steps=4,
        batching_delay=0.0, image_patches=(16, 64),
    )  # fmt: skip
    started = LocalEngine(policy, config, params)
    yield started
    started.close()


Episode = tuple[Call, list[PromptImage]]


def sampled(engine: LocalEngine, prompt: Any, key: int, parent: Call | None = None) -> Episode:
    ids, images = prompt
    sampling = Sampling(budget=5, temperature=0.9)
    return engine.submit(ids, sampling, (key,), parent, images).result(timeout=120), images


@pytest.fixture(scope="module")
def episodes(kind: str, engine: LocalEngine) -> list[list[Episode]]:
    """Two turns each, with videos of odd and even lengths, beside images, at the prompt's end."""
    policy, _ = policy_and_params(kind)
    video = functools.partial(model_video, policy)
    openings = (
        [2, *video(5, 12, 9, 1), 3],
        [*video(4, 9, 20, 2, 0.4), 1, model_image(policy, 12, 12, 1), *video(2, 8, 8, 3), 1],
        [4],
    )
    two_turns = []
    for i, parts in enumerate(openings):
        first, images = sampled(engine, prompt_of(parts, i), i)
        added, new = prompt_of([1, *video(3, 12, 12, 4 + i, 2.0), 1], i)
        both = [*images, *(x.moved(first.length) for x in new)]
        prompt = np.concatenate([first.ids, added]), both
        two_turns.append([(first, images), sampled(engine, prompt, 10 + i, first)])
    return two_turns


def test_sampler_and_learner_agree(kind: str, episodes: list[list[Episode]]):
    """Each with one forward pass, as all of a row's sequences are packed."""
    policy, params = policy_and_params(kind)
    trajectories = [trajectory_of(*(call for call, _ in turns)) for turns in episodes]
    sequences = sequences_of_all([(trajectory, None) for trajectory in trajectories])
    assert len(sequences) == len(episodes)  # every second turn extends the first
    batches, log_probs = [], []
    for feature_bytes, frozen in ((0, ()), (2**20, ("tower", "projector"))):
        policy, params = policy_and_params(kind, frozen)
        config = ImageRows(processor_of(policy), PATCHES, feature_bytes=feature_bytes)
        packer = ImagePacker(config, policy)
        packer.load(params)
        layout = pack(sequences, LENGTH, 1, packer)
        batch = layout.to_batch(np.zeros((layout.num_bins, LENGTH), np.float32))
        logp, _ = jax.jit(functools.partial(token_logp, policy))(params, batch)
        batches.append(batch)
        log_probs.append(np.asarray(logp))
    assert type(batches[0].inputs.images) is not type(batches[1].inputs.images)
    assert layout.num_bins < len(sequences)
    for i, turns in enumerate(episodes):
        for call, images in turns:
            expected = reference_logp(policy, params, call, images)
            np.testing.assert_allclose(call.sampler_logp, expected, atol=2e-5)
            positions = np.arange(len(call.prompt), call.length)
            rows, columns = layout.packed_coordinates(np.full(len(positions), i), positions)
            for logp in log_probs:
                np.testing.assert_allclose(logp[rows, columns], call.sampler_logp, atol=2e-5)


def test_gradients_flow_through_videos(kind: str, episodes: list[list[Episode]]):
    """A central difference along the gradient of the tower's weights."""
    policy, params = policy_and_params(kind)
    (sequence,) = sequences_of_all([(trajectory_of(episodes[0][0][0]), None)])
    layout = pack(
        [sequence], LENGTH, 1, ImagePacker(ImageRows(processor_of(policy), PATCHES), policy)
    )
    batch = layout.to_batch(np.ones((1, LENGTH), np.float32))

    @jax.jit
    def loss(tower: Any) -> jax.Array:
        logp, _ = token_logp(policy, params | {VISION: tower}, batch)
        return -jnp.sum(jnp.where(jnp.asarray(batch.action_mask), logp, 0.0))

    gradient = jax.grad(loss)(params[VISION])
    norm = float(optax.tree_utils.tree_norm(gradient))
    step = 1e-2 / norm
    plus, minus = (
        float(loss(jax.tree.map(lambda p, g, s=sign: p + s * step * g, params[VISION], gradient)))
        for sign in (1, -1)
    )
    np.testing.assert_allclose((plus - minus) / (2 * step), norm**2, rtol=3e-2)


def test_a_group_encodes_a_video_once(kind: str, engine: LocalEngine):
    policy, params = policy_and_params(kind)
    video = model_video(policy, 6, 12, 12, 9)
    ids, images = prompt_of([2, *video, 9])
    before = engine.counts["encoded_images"]
    with record_compilations() as compiled:
        futures = [engine.submit(ids, Sampling(budget=4), (5, i), None, images) for i in range(6)]
        calls = [future.result(timeout=120) for future in futures]
    assert engine.counts["encoded_images"] - before == len(video) and compiled == []
    for call in calls:
        assert call.images == tuple(x.part for x in video)
        np.testing.assert_allclose(
            call.sampler_logp, reference_logp(policy, params, call, images), atol=2e-5
        )
        engine.release(call)


def test_the_order_of_frames_and_their_times_count(kind: str, engine: LocalEngine):
    """The prompts' tokens are equal; in Qwen3-VL's, times are text."""
    policy, params = policy_and_params(kind)
    videos = [model_video(policy, 4, 12, 12, 1), model_video(policy, 4, 12, 12, 1, 0.25)]
    if kind == "Qwen3-VL":
        videos[1] = videos[1][::-1]
    prompts = [prompt_of([2, *video, 4]) for video in videos]
    calls = [sampled(engine, prompt, 3)[0] for prompt in prompts]
    for call, (_, images) in zip(calls, prompts):
        np.testing.assert_allclose(
            call.sampler_logp, reference_logp(policy, params, call, images), atol=2e-5
        )
    other = reference_logp(policy, params, calls[0], prompts[1][1])
    assert np.abs(other - calls[0].sampler_logp).max() > 1e-4
    assert dataclasses.replace(calls[0], images=calls[1].images).extends(calls[0]) is False

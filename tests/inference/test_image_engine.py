"""Images in an engine: tokens and log-probs are those of one forward pass with the tower."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from support.fixtures import record_compilations
from support.vision_policies import (
    KINDS,
    VOCAB_SIZE,
    model_image,
    policy_and_params,
    prompt_of,
    reference_logp,
    vision_config,
)

from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.trajectories import Call, Sampling

CONFIG: dict[str, Any] = {
    "rows": 4, "positions": 96, "prefill_chunk": 4, "min_decode_steps": 2, "max_decode_steps": 4,
    "batching_delay": 0.0, "image_patches": (16, 64),
}  # fmt: skip


def start_engine(kind: str, **fields: Any) -> LocalEngine:
    policy, params = policy_and_params(kind)
    return LocalEngine(policy, EngineConfig(**{**CONFIG, **fields}), params)


@pytest.fixture(
    scope="module",
    params=[
        "Qwen3-VL",
        *(pytest.param(x, marks=pytest.mark.slow) for x in KINDS if x != "Qwen3-VL"),
    ],
)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def engine(kind: str) -> Iterator[LocalEngine]:
    started = start_engine(kind)
    yield started
    started.close()


def sampled(
    engine: LocalEngine,
    ids: np.ndarray,
    images: Sequence[PromptImage],
    key: int = 0,
    parent: Call | None = None,
    budget: int = 7,
) -> Call:
    sampling = Sampling(budget=budget, temperature=0.9)
    return engine.submit(ids, sampling, (key,), parent, images).result(timeout=120)


def assert_is_reference(kind: str, call: Call, images: Sequence[PromptImage]) -> None:
    policy, params = policy_and_params(kind)
    np.testing.assert_allclose(
        call.sampler_logp, reference_logp(policy, params, call, images), atol=2e-5
    )


def test_log_probs_are_those_of_one_forward_pass(kind: str, engine: LocalEngine):
    """Images of odd sizes between texts, at the start, next to each other, and none."""
    policy, _ = policy_and_params(kind)
    first, second = model_image(policy, 9, 30, 1), model_image(policy, 17, 8, 2)
    for i, parts in enumerate(([3, first, 5], [second, first, 2], [1, first, 1, second, 9], [20])):
        ids, images = prompt_of(parts, i)
        call = sampled(engine, ids, images, i)
        assert_is_reference(kind, call, images)
        assert call.image_spans == tuple((x.start, x.end) for x in images)
        assert call.images == tuple(x.image.part for x in images)
        engine.release(call)


def test_turns_extend_the_cache_and_add_images(kind: str, engine: LocalEngine):
    """A turn that adds only an image and a token, one that adds text, one with two images."""
    policy, _ = policy_and_params(kind)
    picture = functools.partial(model_image, policy, 12, 12)
    ids, images = prompt_of([2, picture(1), 3])
    call = sampled(engine, ids, images, 1)
    for turn, parts in enumerate(([picture(2), 1], [4], [1, picture(3), 2, picture(1), 1])):
        added, new = prompt_of(parts, turn)
        images = [*images, *(x.moved(call.length) for x in new)]
        before = engine.counts["prefill_tokens"] + engine.counts["fed_tokens"]
        call = sampled(engine, np.concatenate([call.ids, added]), images, turn, call)
        after = engine.counts["prefill_tokens"] + engine.counts["fed_tokens"]
        assert call.parent is not None and after - before == len(added)
        assert_is_reference(kind, call, images)
    engine.release(call)


def test_guesses_from_the_prompt_do_not_change_calls(kind: str, engine: LocalEngine):
    policy, _ = policy_and_params(kind)
    guessing = start_engine(kind, guesses=3)
    for key in range(3):
        ids, images = prompt_of([3, model_image(policy, 9, 30, key), *[1, 2, 1, 2, 1, 2]], key)
        call, expected = (sampled(x, ids, images, key, budget=12) for x in (guessing, engine))
        assert call.action.tolist() == expected.action.tolist()
        assert_is_reference(kind, call, images)
        engine.release(expected)
    guessing.close()


def test_an_image_is_encoded_once_for_a_group(kind: str, engine: LocalEngine):
    policy, _ = policy_and_params(kind)
    ids, images = prompt_of([2, model_image(policy, 20, 20, 7), 9])
    before = engine.counts["encoded_images"], engine.counts["copies"]
    futures = [engine.submit(ids, Sampling(budget=4), (5, i), None, images) for i in range(8)]
    calls = [future.result(timeout=120) for future in futures]
    assert engine.counts["encoded_images"] - before[0] == 1
    assert engine.counts["copies"] > before[1]  # the group's prompt is prefilled once
    for call in calls:
        assert_is_reference(kind, call, images)
        engine.release(call)


def test_the_order_of_images_changes_log_probs(kind: str, engine: LocalEngine):
    """The tokens of both prompts are equal, and neither takes the other's cache."""
    policy, _ = policy_and_params(kind)
    first, second = model_image(policy, 12, 12, 1), model_image(policy, 12, 12, 2)
    forced = Sampling(budget=3, temperature=1.0)
    calls = []
    for pair in ((first, second), (second, first)):
        ids, images = prompt_of([2, pair[0], 1, pair[1], 9])
        call = engine.submit(ids, forced, (3,), None, images).result(timeout=120)
        assert_is_reference(kind, call, images)
        calls.append((call, images))
        engine.release(call)
    (call, _), (_, swapped) = calls
    policy, params = policy_and_params(kind)
    assert np.abs(reference_logp(policy, params, call, swapped) - call.sampler_logp).max() > 1e-4


def test_another_image_does_not_extend_a_call(kind: str, engine: LocalEngine):
    policy, _ = policy_and_params(kind)
    ids, images = prompt_of([2, model_image(policy, 12, 12, 1), 3])
    call = sampled(engine, ids, images)
    other = [PromptImage(images[0].start, model_image(policy, 12, 12, 2))]
    longer = np.concatenate([call.ids, [3, 4]]).astype(np.int32)
    second = sampled(engine, longer, other, 1, call)
    assert second.parent is None
    assert_is_reference(kind, second, other)
    assert sampled(engine, longer, images, 1, call).parent is call


def test_nothing_compiles_after_warm_up(kind: str, engine: LocalEngine):
    policy, _ = policy_and_params(kind)
    with record_compilations() as compiled:
        for i in range(3):
            ids, images = prompt_of([i + 1, model_image(policy, 8 + 8 * i, 30 - i, i), 2 + 9 * i])
            engine.release(sampled(engine, ids, images, i))
    assert compiled == []


@pytest.mark.parametrize("kind", ["Qwen3-VL"])
def test_parked_and_evicted_episodes_keep_their_images(kind: str):
    """More episodes than rows: some are parked, some prefilled anew with their actions."""
    policy, _ = policy_and_params(kind)
    engine = start_engine(kind, rows=2, parked_slots=2)
    episodes = []
    for i in range(6):
        ids, images = prompt_of([2, model_image(policy, 12, 12, i), 3], i)
        episodes.append((sampled(engine, ids, images, i), images))
    assert engine.counts["parked"] and engine.counts["evictions"]
    for i, (call, images) in enumerate(episodes):
        added, new = prompt_of([1, model_image(policy, 8, 16, 9), 2], i)
        images = [*images, *(x.moved(call.length) for x in new)]
        second = sampled(engine, np.concatenate([call.ids, added]), images, 50 + i, call)
        assert_is_reference(kind, second, images)
    assert engine.counts["encoded_images"] == 7
    engine.close()


@pytest.mark.parametrize("kind", ["Qwen3-VL"])
def test_new_weights_encode_images_anew(kind: str):
    policy, _ = policy_and_params(kind)
    engine = start_engine(kind)
    ids, images = prompt_of([2, model_image(policy, 12, 12, 1), 3])
    engine.release(sampled(engine, ids, images))
    new = policy.init(jax.random.key(1))
    engine.publish(new, 1, recompute=True)
    call = sampled(engine, ids, images)
    np.testing.assert_allclose(
        call.sampler_logp, reference_logp(policy, new, call, images), atol=2e-5
    )
    assert engine.counts["encoded_images"] == 2
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Qwen3-VL", "Gemma 3"])
@pytest.mark.parametrize("mesh", [{"data": 4}, {"data": 2, "tensor": 2}])
def test_sharded_engines_agree(kind: str, mesh: dict[str, int]):
    policy, _ = policy_and_params(kind)
    engine = start_engine(kind, mesh=MeshConfig(**mesh))
    for i in range(3):
        ids, images = prompt_of([2, model_image(policy, 12, 12, i), 3], i)
        assert_is_reference(kind, sampled(engine, ids, images, i), images)
    engine.close()


def test_wrong_images_are_refused(kind: str, engine: LocalEngine):
    policy, _ = policy_and_params(kind)
    image = model_image(policy, 12, 12, 1)
    ids, images = prompt_of([2, image, 3])
    other = vision_config("Gemma 3" if kind != "Gemma 3" else "Qwen3-VL").build(VOCAB_SIZE)
    wrong = {
        "does not end before the last": [PromptImage(len(ids) - image.num_tokens, image)],
        "overlaps another one": [images[0], PromptImage(images[0].start, image)],
        "give its agent and its algorithm": [PromptImage(2, model_image(other, 9, 9, 1))],
    }
    for message, prompt_images in wrong.items():
        with pytest.raises((ValueError, UserError), match=message):
            engine.submit(ids, Sampling(), (0,), None, prompt_images)


def test_images_need_an_engine_that_has_a_tower():
    policy, _ = policy_and_params("Qwen3-VL")
    ids, images = prompt_of([2, model_image(policy, 12, 12, 1), 3])
    engine = start_engine("Qwen3-VL", image_patches=())
    with pytest.raises(ValueError, match="made for prompts without images"):
        engine.submit(ids, Sampling(), (0,), None, images)
    engine.close()
    small = start_engine("Qwen3-VL", image_patches=(4,))
    with pytest.raises(ValueError, match=r"has 16 patches and the engine takes at most 4"):
        small.submit(ids, Sampling(), (0,), None, images)
    small.close()
    with pytest.raises(UserError, match="multiples of 4, not 6"):
        start_engine("Qwen3-VL", image_patches=(6,))
    blind = DecoderConfig(layers=1, width=8, hidden=8, heads=2).build(VOCAB_SIZE)
    with pytest.raises(UserError, match="the policy sees no images"):
        LocalEngine(blind, EngineConfig(**CONFIG), blind.init(jax.random.key(0)))


def test_an_image_that_attends_to_itself_must_fit_a_program():
    policy, _ = policy_and_params("Gemma 3")
    ids, images = prompt_of([2, model_image(policy, 12, 12, 1), 3])
    engine = start_engine("Gemma 3", prefill_chunk=1)
    assert_is_reference("Gemma 3", sampled(engine, ids, images), images)
    engine.close()

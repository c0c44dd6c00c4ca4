"""A decoder that sees: what its images change, shared prefixes, frozen parts, adapters."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tower_policies import CONFIGS, QWEN3, VOCAB, random_params, some_grids
from support.vision_folders import make_document, packed_inputs

from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.quantized import int8, is_quantized
from agentrl_jax.policy import PolicyInputs, VisionPolicy, image_format

slow = pytest.mark.slow


def one_fast(fast: str) -> Any:
    """Of the kinds of policies, only this is in the fast tests."""
    names = [pytest.param(name, marks=() if name == fast else slow) for name in CONFIGS]
    return pytest.mark.parametrize("name", names)


def logits_of(policy: Any, params: Any, inputs: PolicyInputs) -> np.ndarray:
    forward = jax.jit(lambda params, x: policy.logits(params, policy.apply(params, x).hidden))
    return np.asarray(forward(params, inputs))


@one_fast("qwen2.5")
def test_the_order_of_images_changes_what_follows_them_and_nothing_before(name):
    policy = CONFIGS[name].build(VOCAB)
    form, params = policy.image_format, random_params(policy)
    document = make_document(form, [some_grids(policy, 1)[0]] * 2, 3)
    swapped = dataclasses.replace(document, images=document.images[::-1])
    rows = packed_inputs(form, [[document], [swapped]], 180)
    first, second = logits_of(policy, params, rows)
    start = document.spans[0].start
    np.testing.assert_allclose(first[:start], second[:start], atol=1e-6)
    assert np.abs(first[start + 1 :] - second[start + 1 :]).max() > 1e-3


def test_tokens_of_an_image_attend_to_all_of_it_in_gemma_and_not_past_it():
    policy = CONFIGS["gemma"].build(VOCAB)
    form, params = policy.image_format, random_params(policy)
    document = make_document(form, [(1, 6, 6)], 0)
    inputs = packed_inputs(form, [[document]], 36)
    assert inputs.images is not None
    features = jax.jit(policy.encode_images)(params, inputs.images)
    index = np.asarray(inputs.image_index)
    inputs = dataclasses.replace(inputs, images=None, image_index=None)

    def hidden(features: Any, first_token: Any) -> Any:
        features_given = dataclasses.replace(
            inputs,
            embeddings=features[:, np.maximum(index[0], 0)],
            embedding_mask=index >= 0,
        )
        return policy.apply(params, features_given).hidden[0, first_token].sum()

    start = document.spans[0].start
    gradient_of = jax.jit(jax.grad(hidden))
    for token, reach in ((start, 4), (start + 2, 4), (start - 1, 0)):
        gradient = np.asarray(gradient_of(features, token))[0]
        assert (np.abs(gradient).max(axis=-1) > 1e-7).sum() == reach


@one_fast("gemma")
def test_branches_of_a_shared_prefix_see_its_images(name):
    policy = CONFIGS[name].build(VOCAB)
    form, params = policy.image_format, random_params(policy)
    document = make_document(form, some_grids(policy, 2), 5)
    prefix, branch = len(document.tokens) - 3, 8
    rng = np.random.default_rng(0)
    endings = [rng.integers(0, 45, branch).astype(np.int32) for _ in range(2)]
    full_rows = [
        dataclasses.replace(document, tokens=np.concatenate([document.tokens[:prefix], x]))
        for x in endings
    ]
    want = logits_of(policy, params, packed_inputs(form, [[x] for x in full_rows], 180))
    rows = packed_inputs(form, [[full_rows[0], branch]], 180)
    columns = slice(prefix + branch, prefix + 2 * branch)
    arrays = {}
    for field in ("tokens", "positions", "segment_ids", "rope_positions", "visible_until"):
        array = getattr(rows, field)
        if array is not None:
            array = array.copy()
            array[..., columns] = array[..., prefix : prefix + branch]
            arrays[field] = array
    arrays["tokens"][0, columns] = endings[1]
    shared = dataclasses.replace(rows, **arrays, prefix_length=prefix, branch_length=branch)
    got = logits_of(policy, params, shared)[0]
    np.testing.assert_allclose(got[: prefix + branch], want[0], atol=2e-5)
    np.testing.assert_allclose(got[columns], want[1][prefix:], atol=2e-5)


@pytest.mark.parametrize(
    ("frozen", "count"), [((), 3), (("tower",), 2), (("tower", "decoder"), 1), (("projector",), 2)]
)
def test_frozen_parts_are_not_trained(frozen, count):
    policy = dataclasses.replace(QWEN3, frozen=frozen).build(VOCAB)
    trainable = policy.trainable()
    vision = trainable["vision"]
    parts = [trainable["embedding"], vision["layers"]["qkv"], vision["projector"]["up"]]
    assert sum(parts) == count
    assert vision["deepstack_1"]["up"] == vision["projector"]["up"]
    assert jax.tree.structure(trainable) == jax.tree.structure(random_params(policy))


@one_fast("gemma")
def test_adapters_of_the_tower_add_nothing_at_first_and_merge_into_its_weights(name):
    matrix = "qkv" if CONFIGS[name].vision.fused_qkv else "query"
    targets = ("query", "down", f"vision.{matrix}", "vision.out", "vision.down")
    policy = LoraConfig(CONFIGS[name], rank=2, alpha=4.0, targets=targets).build(VOCAB)
    base = CONFIGS[name].build(VOCAB)
    form = image_format(policy)
    assert form is not None and isinstance(policy, VisionPolicy)
    params = {"base": random_params(base), "adapters": policy.init_adapters(jax.random.key(1))}
    inputs = packed_inputs(form, [[make_document(form, some_grids(base, 2), 1)]], 180)
    plain = logits_of(base, params["base"], inputs)
    np.testing.assert_allclose(logits_of(policy, params, inputs), plain, atol=1e-6)
    params["adapters"] = jax.tree.map(
        lambda x: x + 0.1 * jax.random.normal(jax.random.key(x.size), x.shape), params["adapters"]
    )
    got, merged = logits_of(policy, params, inputs), policy.merge(params)
    assert np.abs(got - plain).max() > 1e-2
    np.testing.assert_allclose(got, logits_of(base, merged, inputs), atol=1e-4)
    assert inputs.images is not None
    features = jax.jit(policy.encode_images)(policy.unstack(params), inputs.images)
    want = jax.jit(base.encode_images)(merged, inputs.images)
    np.testing.assert_allclose(features, want, atol=1e-4)

    def total(adapters: Any) -> Any:
        return jnp.sum(policy.apply(params | {"adapters": adapters}, inputs).hidden)

    gradient = jax.jit(jax.grad(total))(params["adapters"])
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(gradient["vision"]))


def test_the_tower_stays_dense_where_the_decoder_is_quantized():
    policy = LoraConfig(QWEN3, rank=2, quantize=int8).build(VOCAB)
    base = jax.eval_shape(policy.init, jax.random.key(0))["base"]
    assert is_quantized(base["layers"]["attention"]["query"])
    assert not any(map(is_quantized, jax.tree.leaves(base["vision"], is_leaf=is_quantized)))


def test_a_decoder_without_a_tower_has_no_image_format():
    decoder = DecoderConfig(layers=1)
    assert image_format(decoder.build(9)) is None
    assert image_format(LoraConfig(decoder).build(9)) is None

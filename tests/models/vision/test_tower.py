"""Vision towers: local attention, packing, padding, meshes, compilation."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import device_mesh, record_compilations
from support.tower_policies import CONFIGS, QWEN2_5, VOCAB, random_params, some_grids
from support.vision_folders import make_document, packed_inputs, random_image

from agentrl_jax.distributed.sharding import batch_sharding, weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.image_format import ImagePatches, PackedImages
from agentrl_jax.models.vision.attention import attend_segments
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig
from agentrl_jax.policy import PolicyInputs

slow = pytest.mark.slow
ONE_FAST = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "qwen2.5" else slow) for name in CONFIGS]
)


@pytest.mark.parametrize("lengths", [(4, 4, 1, 3, 4, 4, 2, 4), (1, 4, 4, 4, 4, 4)])
def test_local_attention_is_attention_within_segments(lengths):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(1, len(lengths) + 1), lengths)
    ids = np.stack([np.pad(ids, (0, 30 - len(ids))), np.pad(ids[3:], (0, 33 - len(ids)))])
    query, key, value = (rng.normal(size=(2, 30, 2, 4)).astype(np.float32) for _ in range(3))
    scores = np.einsum("rqnh,rknh->rnqk", query, key) * 0.3
    scores = np.where((ids[:, :, None] == ids[:, None])[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("rnqk,rknh->rqnh", weights / weights.sum(-1, keepdims=True), value)
    for longest in (0, 4):
        q, k, v = (jnp.asarray(x) for x in (query, key, value))
        got = np.asarray(attend_segments(q, k, v, jnp.asarray(ids), 0.3, longest))
        np.testing.assert_allclose(got[ids > 0], want[ids > 0], atol=1e-6)


@ONE_FAST
def test_an_images_features_do_not_depend_on_its_row(name):
    policy = CONFIGS[name].build(VOCAB)
    params, form = random_params(policy), policy.image_format
    rng = np.random.default_rng(1)
    images = [
        random_image(form, grid, rng) for grid in (some_grids(policy, 5)[i] for i in (0, 1, 3))
    ]
    counts = [form.count_tokens(x.grid) for x in images]
    encode = jax.jit(policy.encode_images)
    packed = form.pack([images, images[::-1], []], 180)
    noise = rng.normal(size=packed.patches.shape).astype(np.float32)
    is_padding = np.asarray(packed.segment_ids)[:, :, None] == 0
    patches = np.where(is_padding, noise, packed.patches)
    features = np.asarray(encode(params, dataclasses.replace(packed, patches=patches)))
    assert features.shape[-1] == form.feature_width
    local = form.pack([images, images[::-1], []], 180, max_frame=36 if form.fixed_side else 48)
    local = np.asarray(encode(params, local))[:2, : sum(counts)]
    np.testing.assert_allclose(local, features[:2, : sum(counts)], atol=2e-5)
    for row, order in ((0, [0, 1, 2]), (1, [2, 1, 0])):
        start = 0
        for i in order:
            alone = np.asarray(encode(params, form.pack([[images[i]], [], []], 180)))[0]
            part = features[row, start : start + counts[i]]
            np.testing.assert_allclose(part, alone[: counts[i]], atol=2e-5)
            start += counts[i]
    assert np.isfinite(features).all()


@pytest.mark.parametrize("name", ["qwen2.5", pytest.param("qwen3", marks=slow)])
def test_a_videos_frames_are_encoded_as_images_are(name):
    policy = CONFIGS[name].build(VOCAB)
    form, params = policy.image_format, random_params(policy)
    video = random_image(form, (3, 6, 4), np.random.default_rng(2))
    frames = [ImagePatches(x, (1, 6, 4)) for x in np.split(video.patches, 3)]
    packed = form.pack([[video], frames], 72)
    video_features, frame_features = np.asarray(jax.jit(policy.encode_images)(params, packed))
    np.testing.assert_allclose(video_features, frame_features, atol=1e-6)


@ONE_FAST
def test_images_of_a_bucket_compile_once(name):
    policy = CONFIGS[name].build(VOCAB)
    form, params = policy.image_format, random_params(policy)
    apply = jax.jit(policy.apply)
    documents = [make_document(form, some_grids(policy, n), n) for n in (1, 2, 3)]
    length = max(len(x.tokens) for x in documents)
    batches = [packed_inputs(form, [[x, length - len(x.tokens)]], 180) for x in documents]
    apply(params, batches[0])
    with record_compilations() as compiled:
        for batch in batches:
            apply(params, batch)
    assert not compiled


def loss(policy: Any, params: Any, inputs: PolicyInputs) -> Any:
    output = policy.apply(params, inputs)
    return jnp.mean(jnp.sin(jax.nn.log_softmax(policy.logits(params, output.hidden))))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("qwen2.5", {"data": 2, "fsdp": 2, "tensor": 2}),
        pytest.param("qwen3", {"fsdp": 4, "tensor": 2}, marks=slow),
        pytest.param("gemma", {"data": 2, "fsdp": 2, "tensor": 2}, marks=slow),
    ],
)
def test_eight_devices_give_one_devices_loss_and_gradient(name, sizes):
    policy, mesh = CONFIGS[name].build(VOCAB), device_mesh(**sizes)
    params, form = random_params(policy), policy.image_format
    documents = [make_document(form, some_grids(policy, n), n) for n in (1, 2, 0, 3)]
    length = max(len(x.tokens) for x in documents)
    inputs = packed_inputs(form, [[x, length - len(x.tokens)] for x in documents], 180)
    step = jax.jit(jax.value_and_grad(lambda params, x: loss(policy, params, x)))
    want = step(params, inputs)
    split = jax.device_put(params, weight_shardings(mesh, policy.axes(), params))
    qkv = "qkv" if "qkv" in params["vision"]["layers"] else "query"
    shard = split["vision"]["layers"][qkv].addressable_shards[0].data
    assert shard.size * sizes["fsdp"] * sizes["tensor"] == split["vision"]["layers"][qkv].size
    with jax.set_mesh(mesh):
        rows = batch_sharding(mesh)
        placed = dataclasses.replace(jax.device_put(
            dataclasses.replace(inputs, rope_positions=None), rows
        ), rope_positions=inputs.rope_positions)  # fmt: skip
        got = jax.jit(jax.value_and_grad(lambda params, x: loss(policy, params, x)))(split, placed)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-4), want, got)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers must be at least 1, not 0"),
        ({"heads": 3}, r"width \(64\) must be a multiple of its heads \(3\)"),
        ({"heads": 32}, "a head size that is a multiple of 4, not"),
        ({"rope_theta": 0.0, "position_side": 0}, "needs positions"),
        ({"window": 3}, r"window \(3\) and fixed_side \(0\) must be multiples"),
        ({"deepstack_layers": (1, 0)}, "deepstack_layers must rise and lie within its 2 layers"),
        ({"full_layers": (2,)}, "full_layers must rise and lie within"),
        ({"norm_eps": 0.0}, "norm_eps must be positive"),
        ({"window": -2}, "window must not be negative"),
    ],
)
def test_towers_that_make_no_sense_are_refused(changes, message):
    config = VisionLanguageConfig(vision=dataclasses.replace(VisionConfig(), **changes))
    with pytest.raises(UserError, match=message):
        config.build(VOCAB)


def test_policies_that_make_no_sense_are_refused():
    with pytest.raises(UserError, match="a decoder of 1 layers cannot take the features of 2"):
        vision = dataclasses.replace(VisionConfig(), deepstack_layers=(0, 1))
        VisionLanguageConfig(layers=1, vision=vision).build(VOCAB)
    with pytest.raises(UserError, match="can be frozen are tower, projector, decoder, not 'head'"):
        VisionLanguageConfig(frozen=("head",)).build(VOCAB)
    with pytest.raises(UserError, match="half the head size"):
        dataclasses.replace(QWEN2_5, head_size=12).build(VOCAB)


def test_images_without_an_index_or_with_other_rows_are_refused():
    policy = QWEN2_5.build(VOCAB)
    params, form = random_params(policy), policy.image_format
    document = make_document(form, [(1, 4, 4)], 0)
    inputs = packed_inputs(form, [[document]], 16)
    with pytest.raises(UserError, match="images of a batch need `image_index`"):
        jax.eval_shape(policy.apply, params, dataclasses.replace(inputs, image_index=None))
    assert isinstance(inputs.images, PackedImages)
    two = jax.tree.map(lambda x: np.concatenate([x, x]), inputs.images)
    with pytest.raises(UserError, match="a batch of 1 rows of tokens needs as many rows of"):
        jax.eval_shape(policy.apply, params, dataclasses.replace(inputs, images=two))

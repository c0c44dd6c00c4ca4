"""Low-rank adapters: zero at the start, equal merged and unmerged, trained with a frozen base,
dropout, and PEFT's folders.
"""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file, save_file
from support.fixtures import device_mesh, random_trajectory

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
from agentrl_jax.distributed.sharding import is_logical_axes
from agentrl_jax.errors import UserError
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.packing import pack
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.models.adapters import PROJECTIONS, LoraConfig, LoraPolicy
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.hf.peft import load_adapters, save_adapters
from agentrl_jax.models.layers import project
from agentrl_jax.models.moe import ExpertsConfig
from agentrl_jax.models.parameters import Module, apply, compact, init_params, zeros
from agentrl_jax.policy import PolicyInputs

VOCAB = 13
BASE = DecoderConfig(layers=2, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, qkv_bias=True)
SPARSE = dataclasses.replace(
    BASE, tied_head=False, experts=ExpertsConfig(4, 2, 12, dense_layers=(1,))
)
EVERYTHING = "experts, router, embedding and head"
CONFIGS = {
    "projections": LoraConfig(BASE, rank=3, alpha=6.0),
    "two of them": LoraConfig(BASE, rank=2, alpha=1.0, targets=("out", "down")),
    EVERYTHING: LoraConfig(
        SPARSE, rank=2, alpha=4.0, targets=(*PROJECTIONS, "router", "embedding", "head")
    ),
}
EVERY = pytest.mark.parametrize(
    "name", ["projections", "two of them", pytest.param(EVERYTHING, marks=pytest.mark.slow)]
)


def inputs():
    tokens = np.random.default_rng(1).integers(0, VOCAB, (2, 9), np.int32)
    return PolicyInputs(
        tokens=tokens,
        positions=np.broadcast_to(np.arange(9, dtype=np.int32), (2, 9)),
        segment_ids=np.ones((2, 9), np.int32),
    )


@functools.cache
def lora_policy(name: str):
    """The policy, parameters whose adapters are not zero, and their logits."""
    return make(CONFIGS[name])


def make(config: LoraConfig):
    policy = config.build(VOCAB)
    params = policy.init(jax.random.key(0))
    random = np.random.default_rng(2)
    adapters = jax.tree.map(
        lambda x: jnp.asarray(random.normal(0.0, 0.1, x.shape), x.dtype), params["adapters"]
    )
    params = {"base": params["base"], "adapters": adapters}
    return policy, params, logits(policy, params)


def logits(policy, params):
    return jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs()).hidden))(
        params
    )


@pytest.mark.slow
def test_fresh_adapters_change_nothing():
    policy = CONFIGS["projections"].build(VOCAB)
    params = policy.init(jax.random.key(0))
    np.testing.assert_array_equal(logits(policy, params), logits(policy.base, params["base"]))
    assert all(
        np.abs(x).max() > 0
        for path, x in jax.tree.leaves_with_path(params["adapters"])
        if "down" in str(path[-1])
    )


@pytest.mark.slow
@EVERY
def test_adapting_equals_merging(name: str):
    policy, params, got = lora_policy(name)
    merged = policy.merge(params)
    np.testing.assert_allclose(got, logits(policy.base, merged), atol=1e-5)
    if name == "projections":
        assert np.abs(got - logits(policy.base, params["base"])).max() > 0.1
    weight, adapter = (
        params["base"]["layers"]["attention"]["out"],
        params["adapters"]["layers"]["attention"]["out"],
    )
    scale = policy.config.alpha / policy.config.rank
    want = weight[0] + scale * np.einsum("NHr,rD->NHD", adapter["down"][0], adapter["up"][0])
    np.testing.assert_allclose(merged["layers"]["attention"]["out"][0], want, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "merge"),
    [
        ("projections", True),
        ("projections", False),
        pytest.param(EVERYTHING, False, marks=pytest.mark.slow),
    ],
)
def test_sampling_sees_the_same_policy_merged_or_not(name: str, merge: bool):
    policy, params, want = lora_policy(name)
    policy = dataclasses.replace(
        policy, config=dataclasses.replace(policy.config, merge_for_sampling=merge)
    )
    unstacked, rows = policy.unstack(params), inputs()
    assert bool(unstacked["adapters"]) == (not merge)

    @jax.jit
    def step(cache, part):
        output = policy.apply(unstacked, part, cache)
        return output.cache, policy.logits(unstacked, output.hidden)

    cache, parts = policy.init_cache(2, 12), []
    for start in (0, 3, 6):
        cache, part = step(cache, jax.tree.map(lambda x, a=start: x[:, a : a + 3], rows))
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), want, atol=1e-5)


def test_shapes_axes_and_what_is_trained_agree():
    policy = CONFIGS[EVERYTHING].build(VOCAB)
    params = jax.eval_shape(policy.init, jax.random.key(0))
    axes, trained = policy.axes(), policy.trainable()
    assert (
        jax.tree.structure(params)
        == jax.tree.structure(trained)
        == jax.tree.structure(axes, is_leaf=is_logical_axes)
    )
    assert [len(x.shape) for x in jax.tree.leaves(params)] == [
        len(names) for names in jax.tree.leaves(axes, is_leaf=is_logical_axes)
    ]
    assert axes["adapters"]["layers"]["mlp"]["gate"] == {
        "down": ("layers", "experts", "embed", "rank"),
        "up": ("layers", "experts", "rank", "hidden"),
    }
    assert axes["adapters"]["layers"]["attention"]["out"]["down"] == (
        "layers",
        "heads",
        "head_size",
        "rank",
    )
    assert axes["adapters"]["embedding"] == {"down": ("vocab", "rank"), "up": ("rank", "embed")}
    assert set(jax.tree.leaves(trained["base"])) == {False} and set(
        jax.tree.leaves(trained["adapters"])
    ) == {True}


class SingleProjection(Module):
    """A projection with zero weights, to which an identity adapter adds its input."""

    param_dtype: str = "float32"

    @compact
    def __call__(self, x):
        return project(self, "gate", x, {"embed": 64}, {"hidden": 64}, init=zeros)


def test_dropout_drops_inputs_of_adapters_and_scales_up_the_others():
    x, identity = jnp.ones((8, 16, 64)), {"down": jnp.eye(64), "up": jnp.eye(64)}
    adapters = {"gate": identity | {"rate": jnp.float32(0.25)}}
    params = init_params(SingleProjection(), jax.random.key(0), x)

    def run(key=None) -> Any:
        return apply(SingleProjection(), params, x, adapters=adapters, key=key)

    np.testing.assert_allclose(run(), x, atol=1e-6)
    y = np.asarray(run(jax.random.key(1)))
    kept_units = y > 0
    np.testing.assert_allclose(y[kept_units], 1 / 0.75, rtol=1e-5)
    assert 0.72 < kept_units.mean() < 0.78
    assert (np.asarray(run(jax.random.key(2))) != y).any()


@pytest.mark.slow
def test_only_training_drops_anything_and_each_layer_its_own():
    config = dataclasses.replace(CONFIGS["two of them"], dropout=0.5)
    policy, params, still = make(config)
    np.testing.assert_array_equal(still, lora_policy("two of them")[2])
    dropped = jax.jit(
        lambda key: policy.logits(params, policy.apply(params, inputs(), key=key).hidden)
    )
    assert np.abs(dropped(jax.random.key(1)) - still).max() > 1e-3
    assert np.abs(dropped(jax.random.key(1)) - dropped(jax.random.key(2))).max() > 1e-3


@pytest.mark.slow
def test_the_optimizer_keeps_moments_for_adapters_alone():
    policy, params, _ = lora_policy("projections")
    learner = Learner(
        policy,
        optax.adam(1e-2),
        lambda logp, entropy, batch: (-logp, {}),
        device_mesh(fsdp=2, tensor=2),
    )
    state = learner.init(jax.random.key(0), params)
    count = len(jax.tree.leaves(params["adapters"]))
    assert len(jax.tree.leaves(state.opt_state)) == 1 + 2 * count


@pytest.mark.slow
def test_updates_drop_out_and_scoring_does_not():
    layout, stored = (
        pack(
            sequences_of(random_trajectory([(3, 5, False, 0.0)], np.random.default_rng(0), VOCAB)),
            8,
            1,
        ),
        [],
    )
    for rate in (0.0, 0.5):
        policy, params, _ = make(dataclasses.replace(CONFIGS["two of them"], dropout=rate))
        learner = Learner(
            policy, optax.sgd(0.0), lambda logp, entropy, batch: (-logp, {}), device_mesh()
        )
        batch = layout.to_batch(np.ones((1, 8), np.float32))
        state = learner.init(jax.random.key(0), params)
        score = np.asarray(learner.score(state.params, batch)[0])
        losses = []
        for _ in range(2):
            state, metrics = learner.update(state, [BehaviorCloningBatch(batch=batch)])
            losses.append(float(metrics["loss"]))
        stored.append((score, losses))
    (score, still), (same, dropped) = stored
    np.testing.assert_array_equal(score, same)
    assert still[0] == still[1] != dropped[0] != dropped[1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rank": 0}, "rank >= 1"),
        ({"dropout": 1.0}, "0 <= dropout < 1"),
        ({"targets": ("norm",)}, "no matrix 'norm' to adapt, only down, embedding, gate"),
        ({"targets": ("attention_norm",)}, "no matrix 'attention_norm'"),
    ],
)
def test_adapters_that_make_no_sense_are_refused(change, sentence: str):
    with pytest.raises(UserError, match=sentence):
        dataclasses.replace(CONFIGS["projections"], **change).build(VOCAB)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["projections", "two of them"])
def test_saved_adapters_are_loaded_again(name: str, tmp_path: Path):
    policy, params, _ = lora_policy(name)
    save_adapters(tmp_path, policy, params["adapters"], "some/base")
    again, adapters = load_adapters(tmp_path, policy.base)
    jax.tree.map(np.testing.assert_array_equal, adapters, params["adapters"])
    assert isinstance(again, LoraPolicy) and again.config == dataclasses.replace(policy.config)
    split = load_adapters(tmp_path, policy.base, device_mesh(fsdp=2, tensor=2))[1]
    jax.tree.map(np.testing.assert_array_equal, split, params["adapters"])
    assert split["layers"]["attention"]["out"]["up"].addressable_shards[0].data.shape == (
        2,
        policy.config.rank,
        8,
    )


@pytest.mark.slow
def test_folders_of_adapters_that_are_not_supported_are_named(tmp_path: Path):
    policy, params, _ = lora_policy("projections")
    with pytest.raises(UserError, match=r"holds no adapter_config.json"):
        load_adapters(tmp_path, policy.base)
    save_adapters(tmp_path, policy, params["adapters"])
    path = tmp_path / "adapter_config.json"
    adapter_config = json.loads(path.read_text())
    for change, sentence in (
        ({"use_dora": True}, "adapters with use_dora = True are not supported"),
        (
            {"target_modules": ["q_proj", "lm_head"]},
            "names adapters of 'lm_head', adapter_model.safetensors holds none",
        ),
        ({"r": 2}, r"lora_A.weight has shape \[3, 16\], its config.json asks for \[2, 16\]"),
    ):
        path.write_text(json.dumps(adapter_config | change))
        with pytest.raises(UserError, match=sentence):
            load_adapters(tmp_path, policy.base)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    path.write_text(json.dumps(adapter_config))
    added = {"base_model.model.lm_head.lora_A.weight": np.zeros((3, 16), np.float32)}
    save_file(tensors | added, tmp_path / "adapter_model.safetensors")
    with pytest.raises(UserError, match="adapters of 'lm_head' are not supported, only of linear"):
        load_adapters(tmp_path, policy.base)
    sparse, params, _ = lora_policy(EVERYTHING)
    with pytest.raises(UserError, match="PEFT's format has no place for adapters of embedding"):
        save_adapters(tmp_path, sparse, params["adapters"])

"""Every family of decoders against stored outputs of `transformers`: whole rows, packed rows,
padding and a cache.
"""

import dataclasses
import functools
import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.hf_folders import CONFIG_CASES, config_json, random_prompts, write_folder
from transformers import AutoConfig

from agentrl_jax.errors import UserError
from agentrl_jax.models import load, save
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.decoder_architecture import attention_kinds, layer_stacks
from agentrl_jax.models.hf.configs import config_from_hf, config_to_json
from agentrl_jax.models.moe import ExpertsConfig
from agentrl_jax.models.rope import Rope
from agentrl_jax.policy import PolicyInputs

GOLDEN = Path(__file__).parents[1] / "golden"
SHAPES = json.loads((GOLDEN / "shapes.json").read_text())
ONE_OF_EACH = (
    "llama with biases and llama3 rope",
    "mistral",
    "qwen2 with windows and yarn",
    "qwen3",
    "gemma2",
    "gemma3",
)
EVERY = pytest.mark.parametrize("case", CONFIG_CASES)


@functools.cache
def numbers():
    with np.load(GOLDEN / "decoders.npz") as file:
        return dict(file)


@functools.cache
def model(case):
    """Policy, parameters, and jitted logits of whole rows."""
    with tempfile.TemporaryDirectory() as folder:
        policy, params = load(write_folder(Path(folder), config_json(case), SHAPES[case]))
    return (
        policy,
        params,
        jax.jit(lambda inputs: policy.logits(params, policy.apply(params, inputs).hidden)),
    )


def rows(tokens, positions, segments):
    return PolicyInputs(
        tokens=tokens, positions=positions.astype(np.int32), segment_ids=segments.astype(np.int32)
    )


@pytest.mark.slow
@EVERY
def test_logits_are_those_of_transformers_with_padding_on_either_side_and_packed(case):
    _, _, forward = model(case)
    want, (first, second) = numbers()[f"{case}/logits"], random_prompts()
    padding, others = np.zeros(5, np.int32), np.array([3, 1, 4], np.int32)
    tokens = np.stack(
        [
            np.concatenate([padding, first, padding, second[:18]]),
            np.concatenate([others, first, second, padding]),
        ]
    )
    segments = np.repeat([[0, 1, 0, 2], [3, 1, 2, 0]], [5, 20, 5, 18], axis=1)
    segments[1] = np.repeat([3, 1, 2, 0], [3, 20, 20, 5])
    starts = np.array([[0, 5, 25, 30], [0, 3, 23, 43]])  # of the documents in each row
    positions = np.arange(48) - np.stack([np.repeat(s, np.diff([*s, 48])) for s in starts])
    got = forward(rows(tokens, positions * (segments > 0), segments))
    np.testing.assert_allclose(got[0, 5:25], want[0], atol=2e-4)
    np.testing.assert_allclose(got[0, 30:], want[1, :18], atol=2e-4)
    np.testing.assert_allclose(got[1, 3:23], want[0], atol=2e-4)
    np.testing.assert_allclose(got[1, 23:43], want[1], atol=2e-4)
    assert want.std() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in ONE_OF_EACH else pytest.mark.slow)
        for case in CONFIG_CASES
    ],
)
def test_the_greedy_continuation_over_a_cache_is_that_of_transformers(case):
    policy, params, _ = model(case)
    unstacked, tokens = policy.unstack(params), random_prompts()
    want, length = numbers()[f"{case}/greedy"], tokens.shape[1]

    @jax.jit
    def step(cache, tokens, positions):
        output = policy.apply(unstacked, rows(tokens, positions, jnp.ones_like(tokens)), cache)
        return output.cache, policy.logits(unstacked, output.hidden)

    cache, logits = policy.init_cache(2, 96), None
    for start, stop in ((0, 10), (10, length)):  # in chunks
        positions = np.broadcast_to(np.arange(start, stop, dtype=np.int32), (2, stop - start))
        cache, logits = step(cache, tokens[:, start:stop], positions)
        np.testing.assert_allclose(logits, numbers()[f"{case}/logits"][:, start:stop], atol=2e-4)
    written = []
    for position in range(length, length + want.shape[1]):
        assert logits is not None
        written.append(np.argmax(logits[:, -1], axis=-1).astype(np.int32))
        cache, logits = step(cache, written[-1][:, None], np.full((2, 1), position, np.int32))
    np.testing.assert_array_equal(np.stack(written, axis=1), want)


@pytest.mark.slow
@EVERY
def test_saving_what_was_loaded_and_loading_that_is_the_identity(case, tmp_path: Path):
    first = write_folder(tmp_path / "first", config_json(case), SHAPES[case])
    (first / "tokenizer.json").write_text("{}")
    policy, params = load(first)
    save(tmp_path / "second", policy, params)
    again, same = load(tmp_path / "second")
    save(tmp_path / "third", again, same)
    jax.tree.map(np.testing.assert_array_equal, params, same)
    assert again.config == policy.config
    second, third = (
        {f.name: f.read_bytes() for f in (tmp_path / name).iterdir()}
        for name in ("second", "third")
    )
    assert second == third and set(second) == {"config.json", "model.safetensors", "tokenizer.json"}


@pytest.mark.slow
@EVERY
def test_a_policy_that_came_from_no_folder_is_written_as_a_family_that_describes_it(case):
    policy, _, _ = model(case)
    data = config_to_json(policy.config, policy.vocab_size)
    again = config_from_hf(AutoConfig.for_model(**data))
    assert attention_kinds(again) == attention_kinds(policy.config) and layer_stacks(
        again
    ) == layer_stacks(policy.config)
    plain = {
        "rope": Rope(),
        "window": 0,
        "windowed": (),
        "window_rope": None,
        "query_scale": 0.0,
    }  # equivalent configs may differ in these
    assert dataclasses.replace(again, **plain) == dataclasses.replace(policy.config, **plain)
    assert (again.query_scale or again.head_size**-0.5) == pytest.approx(
        policy.config.query_scale or policy.config.head_size**-0.5
    )


@pytest.mark.slow
def test_such_a_policy_is_loaded_again_with_the_same_logits(tmp_path: Path):
    policy, params, forward = model("qwen2 with windows and yarn")
    save(tmp_path / "it", dataclasses.replace(policy, origin=None), params)
    again, same = load(tmp_path / "it")
    inputs = rows(
        np.tile(random_prompts(), 3)[:, :48],
        np.broadcast_to(np.arange(48), (2, 48)),
        np.ones((2, 48)),
    )
    np.testing.assert_allclose(
        again.logits(same, again.apply(same, inputs).hidden), forward(inputs), atol=1e-6
    )


def test_a_family_that_refuses_a_width_is_passed_over():
    data = config_to_json(
        DecoderConfig(width=20, heads=3, kv_heads=1, head_size=8, qk_norm=True), 10
    )
    assert data["model_type"] == "qwen3" and data["hidden_size"] == 20


def test_gemma_3_has_no_cap_on_its_scores_whatever_its_config_says():
    data = config_json("gemma3")
    plain = config_from_hf(AutoConfig.for_model(**data))
    assert config_from_hf(AutoConfig.for_model(**data, attn_logit_softcapping=5.0)) == plain


def test_a_decoder_that_no_family_has_is_not_written():
    odd = DecoderConfig(qk_norm=True, mlp_bias=True)
    with pytest.raises(
        UserError, match=r"no family of Hugging Face models .* describes this decoder"
    ):
        config_to_json(odd, 10)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "gpt2"}, "architecture 'gpt2' is not supported, only llama, mistral"),
        ({"hidden_act": "relu"}, "activation 'relu' is not supported"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "rope of type 'dynamic' is not supported",
        ),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": None}},
            "a rope of type 'yarn' needs a factor",
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e4,
                    "partial_rotary_factor": 0.5,
                }
            },
            "partial_rotary_factor",
        ),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "bidirectional"),
        ({"model_type": "not a model"}, "cannot be read"),
        ({"num_key_value_heads": 3}, "heads .4. must be a multiple of its kv_heads .3."),
    ],
)
def test_a_config_that_is_not_supported_is_named(change, sentence, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(config_json("llama") | change))
    with pytest.raises(UserError, match=sentence):
        load(tmp_path)


def test_every_family_with_experts_keeps_the_layers_in_order():
    config = DecoderConfig(layers=5, experts=ExpertsConfig(dense_layers=(0, 3)))
    assert [(r.name, r.start, r.layers, r.sparse) for r in layer_stacks(config)] == [
        ("layers", 0, 1, False),
        ("layers_1", 1, 2, True),
        ("layers_2", 3, 1, False),
        ("layers_3", 4, 1, True),
    ]
    params = jax.eval_shape(config.build(9).init, jax.random.key(0))
    unstacked = jax.eval_shape(config.build(9).unstack, params)
    assert ["router" in layer["mlp"] for layer in unstacked["layers"]] == [
        False,
        True,
        True,
        False,
        True,
    ]

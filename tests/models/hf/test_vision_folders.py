"""Qwen2.5-VL, Qwen3-VL and Gemma 3 with their towers against stored outputs of `transformers`:
logits, decoding and gradients, with several images, videos, packing and padding.
"""

import dataclasses
import functools
import json
import re
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.hf_folders import config_json, write_folder
from support.vision_decoding import continue_greedily
from support.vision_folders import VISION_CASES, case_documents, packed_inputs
from transformers import AutoConfig

from agentrl_jax.errors import UserError
from agentrl_jax.models import load, save
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.hf.configs import config_from_hf, config_to_json
from agentrl_jax.models.hf.parameter_trees import tensors_to_save
from agentrl_jax.models.hf.peft import load_adapters, save_adapters
from agentrl_jax.models.hf.policy_tensors import tensor_layouts
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.vision.policy import VisionLanguageModel

GOLDEN = Path(__file__).parents[1] / "golden"
SHAPES = json.loads((GOLDEN / "vision_shapes.json").read_text())
EVERY = pytest.mark.parametrize("case", VISION_CASES)


def one_fast(fast: str):
    """Of the families, only this is in the fast tests."""
    cases = [
        pytest.param(case, marks=() if case == fast else pytest.mark.slow) for case in VISION_CASES
    ]
    return pytest.mark.parametrize("case", cases)


# (prefix that `transformers` saves now, the other spelling) of each family
SPELLINGS = {
    "qwen2.5-vl": [("model.", "model.language_model."), ("visual.", "model.visual.")],
    "qwen3-vl": [("model.language_model.", "model."), ("model.visual.", "visual.")],
    "gemma3": [("vision_tower.", "vision_tower.vision_model.")],
}


@functools.cache
def numbers():
    with np.load(GOLDEN / "vision.npz") as file:
        return dict(file)


@functools.cache
def model(case):
    with tempfile.TemporaryDirectory() as folder:
        policy, params = load(write_folder(Path(folder), VISION_CASES[case], SHAPES[case]))
    assert isinstance(policy, VisionLanguageModel)
    return policy, params


@functools.cache
def forward(case):
    policy, _ = model(case)
    return jax.jit(lambda params, x: policy.logits(params, policy.apply(params, x).hidden))


@EVERY
def test_logits_of_packed_and_padded_documents_are_those_of_transformers(case):
    policy, params = model(case)
    first, second = case_documents(policy.image_format, case)
    rows = [[3, first, second, 4], [second, 7, first]]
    inputs = packed_inputs(policy.image_format, rows, 256)
    got = forward(case)(params, inputs)
    want = [numbers()[f"{case}/logits/{i}"] for i in range(2)]
    long, short = len(first.tokens), len(second.tokens)
    for row, first_at, second_at in ((0, 3, 3 + long), (1, short + 7, 0)):
        np.testing.assert_allclose(got[row, first_at : first_at + long], want[0], atol=1e-4, rtol=0)
        part = got[row, second_at : second_at + short]
        np.testing.assert_allclose(part, want[1], atol=1e-4, rtol=0)
    assert want[0].std() > 0.1


@one_fast("gemma3")
def test_the_greedy_continuation_over_a_cache_is_that_of_transformers(case):
    policy, params = model(case)
    document = case_documents(policy.image_format, case)[0]
    want = numbers()[f"{case}/greedy"]
    logits, written = continue_greedily(policy, params, document, len(want))
    np.testing.assert_allclose(logits, numbers()[f"{case}/logits/0"], atol=1e-4, rtol=0)
    np.testing.assert_array_equal(written, want)


@one_fast("qwen3-vl")
def test_gradients_of_tower_and_projector_are_those_of_torch(case):
    policy, params = model(case)
    form = policy.image_format
    documents = case_documents(form, case)
    inputs = packed_inputs(form, [documents], 256)
    stops = np.cumsum([len(x.tokens) for x in documents])

    def loss(params):
        logits = policy.logits(params, policy.apply(params, inputs).hidden)
        return sum(jnp.mean(part**2) for part in jnp.split(logits[0], stops[:1]))

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    np.testing.assert_allclose(value, numbers()[f"{case}/loss"], rtol=1e-5)
    prefix = f"{case}/gradient/"
    want = {name[len(prefix) :]: x for name, x in numbers().items() if name.startswith(prefix)}
    assert len(want) >= 8
    modules = {*want, "model.language_model.embed_tokens.weight"}
    got = tensors_to_save(tensor_layouts(policy.config, modules), gradient)
    for name, x in want.items():
        scale = np.abs(x).max()
        np.testing.assert_allclose(got[name].to_host(), x, atol=2e-4 * scale, err_msg=name)


@EVERY
def test_a_saved_folder_holds_the_same_tensors_and_config(case, tmp_path: Path):
    folder = write_folder(tmp_path / "first", VISION_CASES[case], SHAPES[case])
    policy, params = load(folder)
    save(tmp_path / "second", policy, params)
    first, second = (load_file(tmp_path / x / "model.safetensors") for x in ("first", "second"))
    assert set(first) == set(second)
    for name, x in first.items():
        np.testing.assert_array_equal(x, second[name], err_msg=name)
    save(tmp_path / "ours", dataclasses.replace(policy, origin=None), params)
    again, _ = load(tmp_path / "ours")
    assert dataclasses.replace(again.config, max_positions=512) == policy.config


@EVERY
def test_the_other_spelling_of_tensors_is_read_as_the_same_weights(case, tmp_path: Path):
    write_folder(tmp_path, VISION_CASES[case], SHAPES[case])
    file = tmp_path / "model.safetensors"
    tensors = {}
    for name, x in load_file(file).items():
        pairs = [(old, new) for old, new in SPELLINGS[case] if name.startswith(old)]
        old, new = pairs[0] if pairs else ("", "")
        tensors[new + name.removeprefix(old)] = x
    assert set(tensors) != set(SHAPES[case])
    save_file(tensors, file, metadata={"format": "pt"})
    jax.tree.map(np.testing.assert_array_equal, load(tmp_path)[1], model(case)[1])


@EVERY
def test_a_config_written_from_our_own_is_read_as_the_same(case):
    policy, _ = model(case)
    data = config_to_json(policy.config, policy.vocab_size)
    assert data["model_type"] == VISION_CASES[case]["model_type"]
    assert config_from_hf(AutoConfig.for_model(**data)) == policy.config


def test_folders_without_what_the_config_asks_for_are_refused(tmp_path: Path):
    case = VISION_CASES["qwen2.5-vl"]
    text = {name: x for name, x in SHAPES["qwen2.5-vl"].items() if "visual" not in name}
    with pytest.raises(UserError, match="holds no vision tower: there is no tensor visual"):
        load(write_folder(tmp_path / "text", case, text))
    case = case | {"vision_config": case["vision_config"] | {"out_hidden_size": 16}}
    with pytest.raises(UserError, match=r"out_hidden_size \(16\) must be"):
        load(write_folder(tmp_path / "narrow", case, SHAPES["qwen2.5-vl"]))
    case = VISION_CASES["gemma3"]
    case = case | {"vision_config": case["vision_config"] | {"vision_use_head": True}}
    with pytest.raises(UserError, match="vision_use_head false"):
        load(write_folder(tmp_path / "head", case, SHAPES["gemma3"]))
    case = VISION_CASES["qwen3-vl"]
    case = case | {"vision_config": case["vision_config"] | {"deepstack_visual_indexes": [2, 0]}}
    with pytest.raises(UserError, match="deepstack_layers must rise"):
        load(write_folder(tmp_path / "order", case, SHAPES["qwen3-vl"]))


def test_parts_of_a_pretrained_model_can_be_frozen(tmp_path: Path):
    folder = write_folder(tmp_path / "vision", VISION_CASES["gemma3"], SHAPES["gemma3"])
    policy = PretrainedDecoder(str(folder), frozen=("tower", "decoder")).build(40)
    trained = policy.trainable()
    assert trained["vision"]["projector"]["down"] and not trained["vision"]["layers"]["query"]
    assert not trained["embedding"]
    with pytest.raises(UserError, match="can be frozen are tower, projector, decoder"):
        PretrainedDecoder(str(folder), frozen=("head",)).build(40)
    shapes = json.loads((GOLDEN / "shapes.json").read_text())["qwen3"]
    text = write_folder(tmp_path / "text", config_json("qwen3"), shapes)
    with pytest.raises(UserError, match="has no vision tower: freezing parts of it"):
        PretrainedDecoder(str(text), frozen=("tower",)).build(40)


@one_fast("qwen2.5-vl")
def test_saved_adapters_of_a_model_that_sees_are_loaded_again(case, tmp_path: Path):
    base = model(case)[0]
    tower = "vision.query" if case == "gemma3" else "vision.qkv"
    policy = LoraConfig(base.config, rank=2, targets=("query", "up", tower)).build(48)
    adapters = policy.init_adapters(jax.random.key(0))
    save_adapters(tmp_path, policy, adapters)
    again, loaded = load_adapters(tmp_path, base)
    assert again.config.targets == policy.config.targets
    jax.tree.map(np.testing.assert_array_equal, loaded, adapters)
    expression = json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"]
    root = "model.vision_tower.encoder.layers" if case == "gemma3" else "model.visual.blocks"
    attention = "self_attn.q_proj" if case == "gemma3" else "attn.qkv"
    assert re.fullmatch(expression, f"{root}.1.{attention}")
    assert re.fullmatch(expression, "model.language_model.layers.2.mlp.up_proj")
    assert not re.fullmatch(expression, f"{root}.1.mlp.up_proj")


@pytest.mark.parametrize(
    ("case", "target", "module"),
    [
        ("gemma3", "vision.down", "mm_input_projection_weight"),
        ("qwen2.5-vl", "vision.patch_embedding", "patch_embed.proj.weight"),
    ],
)
def test_adapters_without_a_place_in_pefts_format_are_not_saved(
    case, target: str, module: str, tmp_path: Path
):
    policy = LoraConfig(model(case)[0].config, rank=2, targets=(target,)).build(48)
    with pytest.raises(UserError, match=rf"no place for adapters of {target} \(.*{module}\)"):
        save_adapters(tmp_path, policy, policy.init_adapters(jax.random.key(0)))

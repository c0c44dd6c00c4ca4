"""The memory and FLOPs estimate of a model, against hand counts and published parameter counts."""

import dataclasses
import inspect
import re
from pathlib import Path

import jax
import pytest
from support.hf_folders import config_json, write_folder

from agentrl_jax.distributed.sharding import MeshConfig, weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models import presets
from agentrl_jax.models.decoder import DecoderConfig, parameter_count
from agentrl_jax.models.hf.configs import config_from_hf, config_to_json
from agentrl_jax.models.hf.folder import read_decoder
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.memory_estimate import estimate_memory, format_table
from agentrl_jax.models.moe import ExpertsConfig
from agentrl_jax.models.vision import presets as vision_presets
from agentrl_jax.models.vision.config import VisionConfig
from agentrl_jax.models.vision.policy import VisionLanguageConfig

PRESETS = [
    make
    for module in (presets, vision_presets)
    for name, make in inspect.getmembers(module, inspect.isfunction)
    if name[0] != "_" and make.__module__ == module.__name__
]
SMALL = DecoderConfig(
    layers=2, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, tied_head=False
)
ONE = MeshConfig(1, 1, 1, 1)


@pytest.mark.parametrize("make", PRESETS, ids=lambda make: make.__name__)
def test_a_preset_has_the_published_number_of_parameters(make):
    match = re.search(r"([\d,]+) parameters", make.__doc__)
    assert match and parameter_count(*make()) == int(match[1].replace(",", ""))


@pytest.mark.parametrize(
    "make",
    [
        presets.qwen3_30b_a3b,
        presets.gemma3_4b,
        presets.llama3_2_1b,
        presets.mistral_7b,
        presets.gemma2_2b,
        vision_presets.qwen2_5_vl_7b,
        vision_presets.qwen3_vl_4b,
        vision_presets.gemma3_4b_vision,
    ],
)
def test_a_preset_round_trips_through_a_hugging_face_config(make):
    from transformers import AutoConfig

    config, vocab_size = make()
    assert parameter_count(
        config_from_hf(AutoConfig.for_model(**config_to_json(config, vocab_size))), vocab_size
    ) == parameter_count(config, vocab_size)


def test_an_images_flops_are_counted_by_hand():
    vision = VisionConfig(
        layers=2, width=8, hidden=12, heads=2, patch_size=2, gated_mlp=True, window=4,
        full_layers=(1,),
    )  # fmt: skip
    policy = VisionLanguageConfig(layers=1, width=16, vision=vision).build(10)
    got = estimate_memory(policy, ONE, 8, "cpu", image_pixels=11)
    assert got.image is not None and (got.image.pixels, got.image.tokens) == (12, 9)
    layer = 4 * 8 * 8 + 3 * 8 * 12
    windows = 16**2 + 2 * 8**2 + 4**2  # 4 x 4, 4 x 2 twice, 2 x 2
    products = 36 * (3 * 2 * 2 * 2 * 8 + 2 * layer) + 9 * 32 * (32 + 16)
    assert got.image.forward_flops == 2 * products + 4 * 8 * (36**2 + windows)
    text = dataclasses.replace(SMALL, layers=1, width=16).build(10)
    plain = DecoderConfig(layers=1, width=16).build(10)
    assert got.forward_flops == estimate_memory(plain, ONE, 8, "cpu").forward_flops
    assert got.parameters == got.active_parameters + got.image.parameters
    assert estimate_memory(text, ONE, 8, "cpu").image is None
    table = format_table(got, ONE, 8)
    assert "vision tower: parameters" in table and "an image of 12 x 12: tokens" in table


def test_flops_are_two_per_weight_plus_those_of_attention():
    got = estimate_memory(SMALL.build(10), ONE, 5, "cpu")
    layer = 16 * 4 * 8 * 2 + 16 * 2 * 8 * 2 + 3 * 16 * 24 + 2 * 16
    assert got.parameters == got.active_parameters == 2 * 10 * 16 + 2 * layer + 16
    visible = (1 + 2 + 3 + 4 + 5) / 5
    assert (
        got.forward_flops == 2 * (10 * 16 + 2 * layer + 16) + 2 * 4 * 4 * 8 * visible
        and got.training_flops == 3 * got.forward_flops
    )
    assert (
        got.cache_bytes == 2 * 2 * 2 * 8 * 5 * 4
        and got.weight_bytes == 4 * got.parameters == got.moment_bytes / 2
    )
    near = estimate_memory(
        dataclasses.replace(SMALL, window=2, windowed=(True, False)).build(10), ONE, 5, "cpu"
    )
    assert got.forward_flops - near.forward_flops == pytest.approx(
        4 * 4 * 8 * (visible - (1 + 2 + 2 + 2 + 2) / 5), abs=1
    )


def test_only_the_chosen_experts_count_as_active_parameters():
    sparse = dataclasses.replace(SMALL, experts=ExpertsConfig(8, 2, 12, dense_layers=(0,)))
    got = estimate_memory(sparse.build(10), ONE, 5, "cpu")
    assert got.parameters - got.active_parameters == 6 * 3 * 16 * 12


@pytest.mark.parametrize("sizes", [{"tensor": 7}, {"fsdp": 2, "tensor": 7}, {"expert": 2}])
def test_an_axis_that_splits_no_weight_is_refused(sizes: dict[str, int]):
    name, size = list(sizes.items())[-1]
    with pytest.raises(UserError, match=f"{name}={size} splits none of the model's weights"):
        estimate_memory(SMALL.build(10), MeshConfig(**({"data": 1, "fsdp": 1} | sizes)), 5, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"fsdp": 4, "tensor": 2}, {"data": 2, "expert": 4}, {"fsdp": 8}])
def test_bytes_on_a_device_are_those_of_its_shards(sizes: dict[str, int]):
    policy = dataclasses.replace(
        SMALL, experts=ExpertsConfig(8, 2, 12), param_dtype="bfloat16"
    ).build(10)
    mesh = MeshConfig(**({"data": 1} | sizes))
    devices = jax.make_mesh(
        (mesh.data, mesh.fsdp, mesh.expert, mesh.tensor), ("data", "fsdp", "expert", "tensor")
    )
    devices = jax.sharding.Mesh(
        devices.devices, devices.axis_names, axis_types=(jax.sharding.AxisType.Auto,) * 4
    )
    params = policy.init(jax.random.key(0))
    placed = jax.device_put(params, weight_shardings(devices, policy.axes(), params))
    assert estimate_memory(policy, mesh, 8, "tpu").weight_bytes == sum(
        x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(placed)
    )


def test_an_unsupported_attention_kernel_is_reported():
    text = format_table(estimate_memory(SMALL.build(10), ONE, 100, "tpu"), ONE, 100)
    assert (
        "attention over whole rows" in text
        and "plain (splash attention needs rows of a multiple of 128 tokens, not 100)" in text
    )
    assert re.search(r"^parameters +5,776$", text, re.M) and "on each device (one device)" in text


def test_a_pretrained_model_is_described_by_its_config_alone(tmp_path: Path):
    write_folder(tmp_path, config_json("gemma2"), {"model.norm.weight": [1]})
    policy = read_decoder(tmp_path, "bfloat16", "bfloat16")
    assert policy.config.logit_cap == 4.0
    assert estimate_memory(policy, ONE, 8, "cuda").attention_kernel.startswith(
        "plain (cuDNN attention has no soft cap"
    )
    config = PretrainedDecoder(str(tmp_path), saved_activations=())
    assert config.build(48).config.saved_activations == () and config.build(40).vocab_size == 48
    with pytest.raises(UserError, match=r"the tokenizer has 49 tokens, the model in .* only 48"):
        config.build(49)

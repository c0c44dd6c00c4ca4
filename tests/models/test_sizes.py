"""What `describe` says of a model, against counts by hand and published ones."""

import dataclasses
import inspect
import re
from pathlib import Path

import jax
import pytest
from folders import config_json, write_folder

from agentrl_jax.errors import UserError
from agentrl_jax.models import presets
from agentrl_jax.models.decoder import DecoderConfig, parameter_count
from agentrl_jax.models.experts import ExpertsConfig
from agentrl_jax.models.families import config_of, json_of
from agentrl_jax.models.folder import describe
from agentrl_jax.models.pretrained import Pretrained
from agentrl_jax.models.sizes import sizes_of, table
from agentrl_jax.sharding import MeshConfig, weight_shardings

PRESETS = [make for name, make in inspect.getmembers(presets, inspect.isfunction) if name[0] != "_" and make.__module__ == presets.__name__]
SMALL = DecoderConfig(layers=2, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, tied_head=False)
ONE = MeshConfig(1, 1, 1, 1)


@pytest.mark.parametrize("make", PRESETS, ids=lambda make: make.__name__)
def test_a_preset_has_the_published_number_of_parameters(make):
    found = re.search(r"([\d,]+) parameters", make.__doc__)
    assert found and parameter_count(*make()) == int(found[1].replace(",", ""))


@pytest.mark.parametrize("make", [presets.qwen3_30b_a3b, presets.gemma3_4b, presets.llama3_2_1b, presets.mistral_7b, presets.gemma2_2b])
def test_a_preset_can_be_said_as_a_hugging_face_config(make):
    from transformers import AutoConfig

    config, vocab_size = make()
    assert parameter_count(config_of(AutoConfig.for_model(**json_of(config, vocab_size))), vocab_size) == parameter_count(
        config, vocab_size
    )


def test_operations_are_two_a_weight_and_those_of_attention():
    got = sizes_of(SMALL.build(10), ONE, 5, "cpu")
    layer = 16 * 4 * 8 * 2 + 16 * 2 * 8 * 2 + 3 * 16 * 24 + 2 * 16
    assert got.parameters == got.active == 2 * 10 * 16 + 2 * layer + 16
    seen = (1 + 2 + 3 + 4 + 5) / 5
    assert got.forward == 2 * (10 * 16 + 2 * layer + 16) + 2 * 4 * 4 * 8 * seen and got.training == 3 * got.forward
    assert got.cache == 2 * 2 * 2 * 8 * 5 * 4 and got.weights == 4 * got.parameters == got.moments / 2
    near = sizes_of(dataclasses.replace(SMALL, window=2, windowed=(True, False)).build(10), ONE, 5, "cpu")
    assert got.forward - near.forward == pytest.approx(4 * 4 * 8 * (seen - (1 + 2 + 2 + 2 + 2) / 5), abs=1)


def test_only_the_chosen_experts_work_on_a_token():
    sparse = dataclasses.replace(SMALL, experts=ExpertsConfig(8, 2, 12, dense=(0,)))
    got = sizes_of(sparse.build(10), ONE, 5, "cpu")
    assert got.parameters - got.active == 6 * 3 * 16 * 12


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"fsdp": 4, "tensor": 2}, {"data": 2, "expert": 4}, {"fsdp": 8}])
def test_bytes_on_a_device_are_those_of_its_shards(sizes: dict[str, int]):
    policy = dataclasses.replace(SMALL, experts=ExpertsConfig(8, 2, 12), param_dtype="bfloat16").build(10)
    mesh = MeshConfig(**({"data": 1} | sizes))
    devices = jax.make_mesh((mesh.data, mesh.fsdp, mesh.expert, mesh.tensor), ("data", "fsdp", "expert", "tensor"))
    devices = jax.sharding.Mesh(devices.devices, devices.axis_names, axis_types=(jax.sharding.AxisType.Auto,) * 4)
    params = policy.init(jax.random.key(0))
    placed = jax.device_put(params, weight_shardings(devices, policy.axes(), params))
    assert sizes_of(policy, mesh, 8, "tpu").weights == sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(placed))


def test_a_kernel_that_does_not_serve_is_reported():
    text = table(sizes_of(SMALL.build(10), ONE, 100, "tpu"), ONE, 100)
    assert "attention over whole rows" in text and "plain (splash attention needs rows of a multiple of 128 tokens, not 100)" in text
    assert re.search(r"^parameters +5,776$", text, re.M) and "on each device (one device)" in text


def test_a_pretrained_model_is_described_by_its_config_alone(tmp_path: Path):
    write_folder(tmp_path, config_json("gemma2"), {"model.norm.weight": [1]})
    policy = describe(tmp_path, "bfloat16", "bfloat16")
    assert policy.config.logit_cap == 4.0
    assert sizes_of(policy, ONE, 8, "cuda").attention.startswith("plain (cuDNN attention has no soft cap")
    config = Pretrained(str(tmp_path), kept=())
    assert config.build(48).config.kept == () and config.build(40).vocab_size == 48
    with pytest.raises(UserError, match=r"the tokenizer has 49 tokens, the model in .* only 48"):
        config.build(49)

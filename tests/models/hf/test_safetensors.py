"""Reading folders of weights slice by slice, into any sharding; error messages name the damaged
file or tensor.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.fixtures import device_mesh
from support.hf_folders import config_json, random_weights, write_folder

from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models import load, save
from agentrl_jax.models.hf.parameter_trees import load_array, save_tensors, tensors_to_save
from agentrl_jax.models.hf.safetensors import SafetensorsFolder
from agentrl_jax.models.hf.tensor_layout import TensorLayout

SHAPES = json.loads((Path(__file__).parents[1] / "golden" / "shapes.json").read_text())
CASE = "qwen3 experts and dense layers"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"), config_json(CASE), SHAPES[CASE])


def rewrite(folder: Path, tmp_path: Path, change) -> Path:
    """The folder with its tensors changed by `change(dict)`."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [{"fsdp": 8}, {"fsdp": 2, "tensor": 2, "data": 2}, {"tensor": 4, "data": 2}]
)
def test_every_mesh_loads_the_same_numbers_and_each_device_holds_its_share(
    sizes: dict[str, int], folder: Path
):
    _, want = load(folder)
    mesh = device_mesh(**sizes)
    policy, got = load(folder, mesh)
    jax.tree.map(np.testing.assert_array_equal, want, got)
    shardings = weight_shardings(mesh, policy.axes(), want)
    assert jax.tree.leaves(jax.tree.map(lambda x, s: x.sharding == s, got, shardings)) == [
        True
    ] * len(jax.tree.leaves(want))
    embedding = got["embedding"].addressable_shards[0].data
    assert embedding.size * sizes.get("fsdp", 1) * sizes.get("tensor", 1) == got["embedding"].size


@pytest.mark.slow
def test_a_mesh_with_explicit_axes_is_split_over_too(folder: Path):
    _, want = load(folder)
    _, got = load(folder, jax.make_mesh((4, 2), ("fsdp", "tensor")))
    jax.tree.map(np.testing.assert_array_equal, want, got)
    assert got["embedding"].addressable_shards[0].data.size * 8 == got["embedding"].size
    with pytest.raises(UserError, match="not 'model'"):
        load(folder, jax.make_mesh((8,), ("model",)))


def test_a_device_reads_only_the_slices_that_it_holds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    read, file_bytes = [], SafetensorsFolder.read_slice

    def spy(self, name, index, out):
        read.append((name, out.size))
        file_bytes(self, name, index, out)

    monkeypatch.setattr(SafetensorsFolder, "read_slice", spy)
    mesh = device_mesh(fsdp=4, tensor=2)
    load(folder, mesh)
    sizes = {name: np.prod(shape) for name, shape in SHAPES[CASE].items()}
    gate = [size for name, size in read if name == "model.layers.1.mlp.gate_proj.weight"]
    assert len(gate) == 8 and set(gate) == {sizes["model.layers.1.mlp.gate_proj.weight"] // 8}


def test_our_axes_are_the_files_flattened_and_turned(tmp_path: Path):
    save_file(
        {"a.0": np.arange(24.0).reshape(6, 4), "a.1": 100 + np.arange(24.0).reshape(6, 4)},
        tmp_path / "model.safetensors",
    )
    tensors, layout = (
        SafetensorsFolder(tmp_path),
        TensorLayout("a.{0}", contracted_axes=1, stack_axes=1),
    )  # [layers, embed 4, heads 3, size 2], in the file [6, 4]
    got = load_array(
        tensors,
        layout,
        (2, 4, 3, 2),
        jax.sharding.SingleDeviceSharding(jax.devices()[0]),
        "float32",
    )
    assert got[1, 2, 1, 0] == 100 + 4 * 2 + 2  # row 2 of the file is head 1's first, column 2
    part = layout.read_slice(
        tensors, (2, 4, 3, 2), (slice(1, 2), slice(2, 4), slice(1, 3), slice(None)), "float32"
    )
    np.testing.assert_array_equal(part, got[1:, 2:, 1:])
    later = (slice(0, 1), slice(1, 3), slice(1, 3), slice(1, 2))  # of each head's numbers
    part = layout.read_slice(tensors, (2, 4, 3, 2), later, "float32")
    np.testing.assert_array_equal(part, got[later])
    with pytest.raises(UserError, match="only the first of a group may be"):
        TensorLayout("a.{0}", contracted_axes=2, stack_axes=1).read_slice(
            tensors, (2, 2, 2, 6), (slice(0, 1), slice(None), slice(0, 1), slice(None)), "float32"
        )


def test_a_convolutions_kernel_is_a_matrix_over_its_flattened_window(tmp_path: Path):
    kernel = np.random.default_rng(0).normal(size=(5, 3, 2, 4)).astype(np.float32)
    save_file({"conv": kernel}, tmp_path / "model.safetensors")
    tensors = SafetensorsFolder(tmp_path)
    layout = TensorLayout("conv", contracted_axes=1, inner_shape=(3, 2, 4))
    assert layout.file_shape((24, 5)) == kernel.shape
    part = layout.read_slice(tensors, (24, 5), (slice(None), slice(1, 4)), "float32")
    np.testing.assert_array_equal(part, kernel.reshape(5, 24).T[:, 1:4])
    np.testing.assert_array_equal(layout.to_file_order(kernel.reshape(5, 24).T), kernel)
    with pytest.raises(UserError, match="inputs of a convolution cannot be split"):
        layout.read_slice(tensors, (24, 5), (slice(0, 12), slice(None)), "float32")


def test_rows_are_read_in_blocks_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agentrl_jax.models.hf.safetensors.MAX_READ_NUMBERS", 10)
    content = np.arange(28.0, dtype=np.float32).reshape(7, 4)
    save_file({"a": content}, tmp_path / "model.safetensors")
    out = np.zeros((5, 3), np.float32)
    SafetensorsFolder(tmp_path).read_slice("a", (slice(1, 6), slice(0, 3)), out)
    np.testing.assert_array_equal(out, content[1:6, :3])


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64"])
def test_other_floats_are_converted_and_the_parameters_have_the_asked_dtype(
    name: str, folder: Path, tmp_path: Path
):
    def narrow(tensors):
        for key in tensors:
            tensors[key] = tensors[key].astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)

    narrowed = rewrite(folder, tmp_path, narrow)
    policy, params = load(narrowed, param_dtype=jnp.bfloat16, compute_dtype="bfloat16")
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    assert (policy.config.param_dtype, policy.config.compute_dtype) == ("bfloat16", "bfloat16")
    want = load_file(narrowed / "model.safetensors")["model.embed_tokens.weight"].astype(np.float32)
    np.testing.assert_array_equal(
        np.asarray(params["embedding"], np.float32),
        want.astype(ml_dtypes.bfloat16).astype(np.float32),
    )


def test_large_models_are_written_and_read_in_several_files(tmp_path: Path):
    arrays = {
        name: jnp.asarray(x)
        for name, x in random_weights({"a": [4, 4], "b": [4, 4], "c": [2]}).items()
    }
    save_tensors(
        tmp_path,
        tensors_to_save({name: TensorLayout(name) for name in arrays}, arrays),
        max_file_bytes=100,
    )
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 34 * 4 and index["weight_map"]["c"] == names[1]
    tensors = SafetensorsFolder(tmp_path)
    assert tensors.shapes == {"a": (4, 4), "b": (4, 4), "c": (2,)}
    (tmp_path / names[0]).unlink()
    with pytest.raises(
        UserError,
        match=r"lacks model-00001-of-00002.safetensors, "
        r"which its index names .1 of 2 files are there",
    ):
        SafetensorsFolder(tmp_path)


def drop(name):
    return lambda tensors: tensors.pop(name)


def put(name, array):
    return lambda tensors: tensors.update({name: array})


NORM, QUERY = "model.layers.0.input_layernorm.weight", "model.layers.2.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (drop(QUERY), f"has no tensor {QUERY}, which its config.json asks for"),
        (
            put(QUERY, np.zeros((64, 31), np.float32)),
            rf"the tensor {QUERY} has shape \[64, 31\], its config.json asks for \[64, 32\]",
        ),
        (
            put(NORM, np.zeros(32, np.int8)),
            f"the tensor {NORM} holds I8: only float64, float32, float16, bfloat16 can be read",
        ),
        (
            put("model.layers.0.extra.bias", np.zeros(3)),
            r"holds the tensor model.layers.0.extra.bias, which its config.json does not",
        ),
        (
            put("model.layers.4.mlp.gate.weight", np.zeros(3)),
            "holds the tensor model.layers.4.mlp.gate.weight, which",
        ),
    ],
)
def test_weights_that_the_config_does_not_describe_are_named(
    change, sentence: str, folder: Path, tmp_path: Path
):
    with pytest.raises(UserError, match=sentence):
        load(rewrite(folder, tmp_path, change))


def test_old_buffers_are_passed_over(folder: Path, tmp_path: Path):
    load(
        rewrite(
            folder,
            tmp_path,
            put("model.layers.0.self_attn.rotary_emb.inv_freq", np.zeros(8, np.float32)),
        )
    )


def test_a_truncated_file_is_named(folder: Path, tmp_path: Path):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    file_bytes = (folder / "model.safetensors").read_bytes()
    for size in (len(file_bytes) - 100, 5, 0):
        (tmp_path / "model.safetensors").write_bytes(file_bytes[:size])
        with pytest.raises(UserError, match=r"model.safetensors is truncated or damaged"):
            load(tmp_path)


def test_folders_that_are_none_are_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="there is no folder /nowhere"):
        load("/nowhere")
    with pytest.raises(UserError, match="there is no folder not/a/model"):
        load("not/a/model")
    with pytest.raises(
        UserError,
        match=r"there is no folder some/model, "
        r"and no model of that name could be downloaded .*config.json",
    ):
        load("some/model")
    with pytest.raises(UserError, match=r"holds no config.json"):
        load(tmp_path)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    with pytest.raises(UserError, match=r"holds no .safetensors files"):
        load(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UserError, match=r"index.json is damaged"):
        load(tmp_path)


def test_dtypes_that_are_none_are_named(folder: Path):
    for wrong in ("int3", "int8", np.float64):
        with pytest.raises(
            UserError, match="param_dtype must be one of float32, bfloat16, float16, not"
        ):
            load(folder, param_dtype=wrong)


def test_a_model_is_not_written_over_another(folder: Path):
    policy, params = load(folder)
    with pytest.raises(UserError, match="holds a model already"):
        save(folder, policy, params)

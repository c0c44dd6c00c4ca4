"""RoBERTa folders against `transformers` on torch. Run this file to write the golden numbers that
the default tests use.

python tests/parity/test_roberta.py
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

from support.roberta_folders import padded_batch, write_folder  # noqa: E402


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
    "changes", [{}, {"model_type": "xlm-roberta"}, {"layer_norm_eps": 0.1}, {"masked_lm": True}]
)
def test_an_encoder_agrees_with_transformers(tmp_path, changes):
    import jax

    from agentrl_jax.models.encoder import bert_pooling, mean_pooling
    from agentrl_jax.models.hf.roberta import load_encoder

    folder = write_folder(tmp_path, **changes)
    want, (tokens, mask) = outputs(folder), padded_batch()
    encoder, params = load_encoder(folder, pooling=bert_pooling)
    got = jax.jit(encoder.apply)(
        params, tokens, mask
    )  # the last row starts with padding, which `transformers` pools
    np.testing.assert_allclose(got[:3], want["pooled"][:3], atol=2e-4)
    encoder, params = load_encoder(folder, pooling=mean_pooling)
    mean = (want["hidden"] * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    np.testing.assert_allclose(jax.jit(encoder.apply)(params, tokens, mask), mean, atol=2e-4)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        np.savez_compressed(GOLDEN, allow_pickle=False, **outputs(write_folder(Path(folder))))  # type: ignore[arg-type]

"""`DenseIndex`: exact nearest neighbors on any mesh; embeddings do not depend on the batch."""

import jax
import numpy as np
import pytest
from support.fixtures import record_compilations

from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.models.dense_index import DenseIndex, embed_texts
from agentrl_jax.models.encoder import EncoderConfig, mean_pooling


@pytest.mark.parametrize("sizes", [{"data": 8}, {"data": 2, "fsdp": 4}, {"data": 2, "tensor": 4}])
@pytest.mark.parametrize("num_rows", [3, 8, 61])
@pytest.mark.parametrize("k", [1, 5])
def test_the_nearest_rows_are_exact_on_any_mesh(sizes: dict[str, int], num_rows: int, k: int):
    rng = np.random.default_rng(num_rows)
    embeddings = rng.normal(size=(num_rows, 16)).astype(np.float32)
    queries = rng.normal(size=(4, 16)).astype(np.float32)
    index = DenseIndex(embeddings, make_mesh(MeshConfig(**sizes)))
    scores, rows = index.search(queries, k)
    products = queries.astype(np.float64) @ embeddings.T
    want = np.argsort(-products, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(rows, want)
    np.testing.assert_allclose(scores, np.take_along_axis(products, want, axis=1), rtol=1e-5)


def test_rows_are_split_and_of_equal_products_the_lower_is_first():
    embeddings = np.ones((24, 4), np.float32)
    index = DenseIndex(embeddings, make_mesh(MeshConfig(data=8)))
    shards = index._embeddings.addressable_shards
    assert len(shards) == 8 and all(shard.data.shape == (3, 4) for shard in shards)
    _, rows = index.search(np.ones((1, 4), np.float32), 5)
    assert rows.tolist() == [[0, 1, 2, 3, 4]]


class LetterTokenizer:
    """A letter is a token, its place in the alphabet the id; pads with 0."""

    def __call__(self, texts: list[str], max_length: int, **_: object) -> dict[str, list]:
        ids = [[ord(letter) - 96 for letter in text][:max_length] for text in texts]
        pad = [max_length - len(row) for row in ids]
        return {
            "input_ids": [row + [0] * n for row, n in zip(ids, pad)],
            "attention_mask": [[1] * len(row) + [0] * n for row, n in zip(ids, pad)],
        }


def test_embeddings_have_length_one_and_do_not_depend_on_the_batch():
    encoder = EncoderConfig(
        layers=1, width=16, hidden=32, heads=2, positions=16, pooling=mean_pooling
    ).build(27)
    params = encoder.init(jax.random.key(0))
    texts = ["river", "town", "a", "novel", "company"]
    vectors = embed_texts(encoder, params, LetterTokenizer(), texts, max_length=8, batch=2)
    assert vectors.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    for i, text in enumerate(texts):
        alone = embed_texts(encoder, params, LetterTokenizer(), [text], max_length=10, batch=1)
        np.testing.assert_allclose(vectors[i], alone[0], atol=1e-5)
    assert embed_texts(encoder, params, LetterTokenizer(), []).shape == (0, 16)


def test_one_text_after_another_compiles_once():
    encoder = EncoderConfig(layers=1, width=8, hidden=8, heads=2, positions=16).build(27)
    params = encoder.init(jax.random.key(0))
    embed_texts(encoder, params, LetterTokenizer(), ["a"], max_length=4, batch=1)
    with record_compilations() as compiled:
        for text in ("b", "cd", "e"):
            embed_texts(encoder, params, LetterTokenizer(), [text], max_length=4, batch=1)
    assert compiled == []

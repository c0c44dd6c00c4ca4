"""`DenseIndex`: embeddings of texts by an encoder, and exact nearest neighbors of queries."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.distributed.sharding import (
    BATCH_AXES,
    MeshConfig,
    batch_sharding,
    make_mesh,
    num_shards,
    with_auto_axes,
)
from agentrl_jax.models.encoder import TextEncoder, mean_pooling
from agentrl_jax.models.hf.encoders import load_encoder
from agentrl_jax.models.hf.shipped import SENTENCE_ENCODER
from agentrl_jax.models.tokenizers import FolderTokenizer
from agentrl_jax.policy import Params
from agentrl_jax.pytree import AnyArray


def embed_texts(
    encoder: TextEncoder,
    params: Params,
    tokenizer: Any,
    texts: Sequence[str],
    max_length: int = 128,
    batch: int = 32,
) -> Float[np.ndarray, "N D"]:
    """The encoder's vectors, scaled to length 1; a long text is cut after `max_length` tokens.

    Args:
        encoder, params: of one pooled vector a text.
        tokenizer: of a Hugging Face folder; what looks like a special token is plain text.
        texts: any number.
        max_length: tokens, special ones included.
        batch: texts at a time.
    """
    rows = [np.zeros((0, encoder.config.width), np.float32)]
    for start in range(0, len(texts), batch):
        part = [*texts[start : start + batch]]
        part += [""] * (batch - len(part))
        encoded = tokenizer(
            part,
            padding="max_length",
            truncation=True,
            max_length=max_length,
            split_special_tokens=True,
        )
        mask = np.asarray(encoded["attention_mask"], bool)
        tokens = np.asarray(encoded["input_ids"], np.int32)
        vectors = np.asarray(_encode(encoder, params, tokens, mask))
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        rows.append(vectors / np.maximum(norms, 1e-12))
    return np.concatenate(rows)[: len(texts)]


@partial(jax.jit, static_argnums=0)
def _encode(
    encoder: TextEncoder, params: Params, tokens: Int[AnyArray, "B T"], mask: Bool[AnyArray, "B T"]
) -> Float[Array, "B D"]:
    return encoder.apply(params, tokens, mask)


class DenseIndex:
    """Embeddings, their rows split over the devices of a mesh.

    The k rows with the largest inner product are exact: each device finds its own k, and the best
    of all are chosen. Of equal products the lower row is first.

    Args:
        embeddings: a row for each text.
        mesh: rows are split over `data` and `fsdp`; None: all devices.
    """

    def __init__(self, embeddings: Float[np.ndarray, "N D"], mesh: Mesh | None = None) -> None:
        self.mesh = with_auto_axes(mesh or make_mesh(MeshConfig()))
        self.num_rows = len(embeddings)
        shards = num_shards(self.mesh, BATCH_AXES)
        padding = ((0, -len(embeddings) % shards), (0, 0))
        self._embeddings = jax.device_put(
            np.pad(np.asarray(embeddings, np.float32), padding), batch_sharding(self.mesh)
        )

    def search(
        self, queries: Float[np.ndarray, "Q D"], k: int
    ) -> tuple[Float[np.ndarray, "Q K"], Int[np.ndarray, "Q K"]]:
        """The k largest inner products of each query, and their rows; fewer where there are not
        so many rows.
        """
        k = min(k, self.num_rows)
        scores, rows = _nearest(
            self._embeddings, jnp.asarray(queries, jnp.float32), k, self.num_rows, self.mesh
        )
        return np.asarray(scores), np.asarray(rows)


def sentence_search(texts: Sequence[str]) -> Callable[[str, int], list[tuple[int, float]]]:
    """A search of texts by the cosine of embeddings: the mean over tokens of a pretrained sentence
    encoder, of the first 128 tokens of a text and 64 of a query.

    A `Retriever` of `SearchQuestions`. Texts are embedded here, on the devices of this process.

    Raises:
        UserError: the encoder is not installed (extra `encoder`).
    """
    encoder, params = load_encoder(SENTENCE_ENCODER, pooling=mean_pooling)
    embed = partial(embed_texts, encoder, params, FolderTokenizer(SENTENCE_ENCODER)(()))
    index = DenseIndex(embed(texts, max_length=128, batch=32))

    def search(query: str, k: int) -> list[tuple[int, float]]:
        scores, rows = index.search(embed([query], max_length=64, batch=1), k)
        return list(zip(rows[0].tolist(), scores[0].tolist()))

    return search


@partial(jax.jit, static_argnums=(2, 3, 4))
def _nearest(
    embeddings: Float[Array, "N D"],
    queries: Float[Array, "Q D"],
    k: int,
    num_rows: int,
    mesh: Mesh,
) -> tuple[Float[Array, "Q K"], Int[Array, "Q K"]]:
    axes = tuple(axis for axis in BATCH_AXES if axis in mesh.shape)

    def nearest_of_shard(
        part: Float[Array, "M D"], queries: Float[Array, "Q D"]
    ) -> tuple[Float[Array, "Q J"], Int[Array, "Q J"]]:
        rows = jax.lax.axis_index(axes) * part.shape[0] + jnp.arange(part.shape[0])
        scores = jnp.einsum("QD,MD->QM", queries, part, precision=jax.lax.Precision.HIGHEST)
        scores = jnp.where(rows[None, :] < num_rows, scores, -jnp.inf)
        best, index = jax.lax.top_k(scores, min(k, part.shape[0]))
        return best, rows[index]

    by_rows, by_columns = PartitionSpec(axes), PartitionSpec(None, axes)
    scores, rows = jax.shard_map(
        nearest_of_shard,
        mesh=mesh,
        in_specs=(by_rows, PartitionSpec()),
        out_specs=(by_columns, by_columns),
        check_vma=False,
    )(embeddings, queries)
    best, index = jax.lax.top_k(scores, k)
    return best, jnp.take_along_axis(rows, index, axis=1)

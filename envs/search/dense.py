"""`DensePages`: pages that are searched by the similarity of embeddings, in place of BM25."""

from collections.abc import Sequence
from functools import lru_cache

from agentrl_jax.envs.search.index import MAX_QUERY, generated_index
from agentrl_jax.envs.search.prose import Page


class DensePages:
    """Pages in memory, searched by the cosine of the query's and the page's embedding.

    The embedding is the mean over tokens of a pretrained sentence encoder, of the title and the
    first tokens of the text, 128 in all. JAX and the encoder are loaded when the first is made.

    Args:
        pages: with different titles.

    Raises:
        UserError: the encoder is not installed (extra `encoder`).
    """

    def __init__(self, pages: Sequence[Page]) -> None:
        from agentrl_jax.models.dense_index import DenseIndex, embed_texts
        from agentrl_jax.models.encoder import mean_pooling
        from agentrl_jax.models.hf.encoders import load_encoder
        from agentrl_jax.models.hf.shipped import SENTENCE_ENCODER
        from agentrl_jax.models.tokenizers import FolderTokenizer

        self.pages = tuple(pages)
        self._by_title = {page.title: page for page in self.pages}
        encoder, params = load_encoder(SENTENCE_ENCODER, pooling=mean_pooling)
        tokenizer = FolderTokenizer(SENTENCE_ENCODER)(())
        self._embed = lambda texts, length, batch: embed_texts(
            encoder, params, tokenizer, texts, length, batch
        )
        texts = [f"{page.title}. {page.text}" for page in self.pages]
        self._index = DenseIndex(self._embed(texts, 128, 32))

    def search(self, query: str, top_k: int) -> tuple[Page, ...]:
        """The `top_k` pages with the most similar embeddings; none for an empty query."""
        return tuple(page for page, _ in self.scored(query, top_k))

    def scored(self, query: str, top_k: int) -> list[tuple[Page, float]]:
        """The pages of `search` with their cosines."""
        text = query[:MAX_QUERY].encode("utf-8", "ignore").decode().strip()
        if not text:
            return []
        scores, rows = self._index.search(self._embed([text], 64, 1), top_k)
        return [(self.pages[row], float(score)) for score, row in zip(scores[0], rows[0])]

    def page(self, title: str) -> Page | None:
        """The page of exactly this title."""
        return self._by_title.get(title.strip())


@lru_cache(maxsize=2)
def generated_dense_pages(seed: int, pages: int) -> DensePages:
    """The embedded pages of a generated encyclopedia, once a process."""
    return DensePages(generated_index(seed, pages).pages)

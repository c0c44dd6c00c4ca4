"""`MixedDocuments`: the documents of several sources in one order."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from agentrl_jax.documents import Document
from agentrl_jax.errors import UserError


@dataclass(frozen=True)
class MixedDocuments:
    """Documents of several sources, each next one of a source that is drawn by its share.

    Args:
        sources: functions that yield documents.
        shares: how often each is drawn; only their ratios count.
        documents: how many in all.

    Raises:
        UserError: there is no source, sources and shares do not match, or a source ends.
    """

    sources: tuple[Callable[[], Iterable[Document]], ...]
    shares: tuple[float, ...]
    documents: int

    def __call__(self) -> Iterator[Document]:
        if not self.sources:
            raise UserError("a mixture of documents needs at least one source")
        if len(self.sources) != len(self.shares) or min(self.shares) <= 0:
            raise UserError(
                f"a mixture needs a share above 0 for each of its {len(self.sources)} sources, "
                f"not {self.shares}"
            )
        shares = np.asarray(self.shares) / sum(self.shares)
        rng = np.random.default_rng(self.documents)
        iterators = [iter(source()) for source in self.sources]
        for number in range(self.documents):
            index = rng.choice(len(shares), p=shares)
            document = next(iterators[index], None)
            if document is None:
                source = f"{self.sources[index]!r:.200}"
                raise UserError(f"{source} ended after {number} of {self.documents} documents")
            yield document

"""Plain text for pretraining: documents from files, and their tokens in one file."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agentrl_jax.documents import Document
from agentrl_jax.errors import UserError
from agentrl_jax.storage.digests import add_digests, folder_damage
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.storage.record_files import open_records

TOKENS_FILE, STARTS_FILE = "tokens.int32", "document_starts.npy"


def read_documents(path: Path) -> Iterator[str]:
    """The texts of a `.jsonl` file, in the field `text` of each line; any other file is one text.

    Raises:
        UserError: the file cannot be read, or a line has no such field; names file and line.
    """
    if path.suffix == ".jsonl":
        records = open_records(path)
        for index in range(len(records)):
            line = records[index]
            if not isinstance(line.get("text"), str):
                raise UserError(
                    f"{records.location(index)}: a document is an object with a text in the field "
                    f"`text`; this one has the fields {', '.join(line) or 'none'}"
                )
            yield line["text"]
        return
    try:
        yield path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot read {path} ({error.strerror}): name a text file or a .jsonl file"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8 ({error}): convert it first") from error


@dataclass(frozen=True)
class DocumentTokens:
    """The tokens of all documents, one after the other, and where each document starts."""

    tokens: np.ndarray  # int32 [N], read from the file as needed
    starts: np.ndarray  # int64 [documents], ascending

    def num_windows(self, length: int) -> int:
        """How many windows of `length` tokens there are; each begins with the last token of the
        one before, which only gives context.
        """
        return max(0, -(-(len(self.tokens) - 1) // (length - 1)))

    def window(self, index: int, length: int) -> list[np.ndarray]:
        """The tokens of a window, cut where a document starts, without pieces of one token.

        Documents of 3 and 4 tokens, length 5: [a b c] [d e], then [e f g].
        """
        first = index * (length - 1)
        tokens = np.asarray(self.tokens[first : first + length])
        low, high = np.searchsorted(self.starts, [first + 1, first + len(tokens)])
        pieces = np.split(tokens, self.starts[low:high] - first)
        return [piece for piece in pieces if len(piece) > 1]

    def document(self, index: int, length: int) -> list[np.ndarray]:
        """The first `length` tokens of a document, or nothing of a document of one token."""
        first, *later = self.starts[index : index + 2].tolist()
        tokens = np.asarray(self.tokens[first : min([first + length, *later])])
        return [tokens] if len(tokens) > 1 else []


def write_tokens(
    folder: Path, documents: Iterable[Document], encode: Callable[[Document], np.ndarray]
) -> None:
    """Write the tokens of documents; the file of their starts is last, so it marks completion.

    Args:
        folder: is created.
        documents: empty ones are left out.
        encode: the ids of a document, int32, with what separates documents.
    """
    folder.mkdir(parents=True, exist_ok=True)
    starts, count = [], 0
    with atomic_write(folder / TOKENS_FILE) as unfinished, open(unfinished, "wb") as file:
        for document in documents:
            if document:
                ids = np.asarray(encode(document), np.int32)
                starts.append(count)
                count += len(ids)
                file.write(ids.tobytes())
    with atomic_write(folder / STARTS_FILE) as unfinished, open(unfinished, "wb") as file:
        np.save(file, np.asarray(starts, np.int64))
    add_digests(folder)


def is_complete(folder: Path) -> bool:
    """Whether the tokens are there as they were written; else they are written again."""
    return (folder / STARTS_FILE).exists() and not folder_damage(folder)


def read_tokens(folder: Path) -> DocumentTokens:
    """What `write_tokens` wrote. Raises UserError where it holds no two tokens."""
    path = folder / TOKENS_FILE
    if path.stat().st_size < 2 * np.dtype(np.int32).itemsize:
        raise UserError("the documents hold no text: check the file or the function that yields it")
    return DocumentTokens(np.memmap(path, np.int32, mode="r"), np.load(folder / STARTS_FILE))

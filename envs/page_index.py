"""`PageIndex`: full-text search over pages by BM25, in SQLite's FTS5."""

import os
import re
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_jax.errors import UserError

MAX_QUERY = 1000  # characters that are read of a query
MAX_WORDS = 32  # different words of it


@dataclass(frozen=True)
class Page:
    """A page with a title of its own."""

    title: str
    text: str


def query_words(query: str) -> list[str]:
    """The different words of a query, in lower case; any text has a list, maybe an empty one."""
    text = query[:MAX_QUERY].encode("utf-8", "ignore").decode().lower()
    return list(dict.fromkeys(re.findall(r"[^\W_]+", text)))[:MAX_WORDS]


class PageIndex:
    """Pages in memory, searched by any of a query's words.

    score = sum over words of max(1e-6, ln((N - n + .5) / (n + .5))) f (k1 + 1) / (f + k1 (1 - b +
    b l / L)), k1 = 1.2, b = .75; f is the word's count in title and text, l their length, L the
    mean length, n of N pages hold the word. That is FTS5's bm25(), with the sign turned. Words on
    more than half of the pages weigh nothing and are left out where the query has others.

    Args:
        pages: with different titles.
        path: of a new file for the index; empty: it is in memory.

    Raises:
        UserError: two pages have one title, the file is there already, or this Python's SQLite
            lacks FTS5.
    """

    def __init__(self, pages: Sequence[Page], path: str = "") -> None:
        self.pages = tuple(pages)
        self._by_title = {page.title: i for i, page in enumerate(self.pages)}
        if len(self._by_title) < len(self.pages):
            raise UserError("two pages have the same title")
        self._lock = threading.Lock()
        if path and os.path.exists(path):
            raise UserError(f"{path} exists: the index of pages is written into a new file")
        self._database = sqlite3.connect(path or ":memory:", check_same_thread=False)
        try:
            self._database.execute("CREATE VIRTUAL TABLE pages USING fts5(title, text)")
        except sqlite3.OperationalError as error:
            raise UserError(f"search needs a Python whose SQLite has FTS5: {error}") from error
        rows = ((i, page.title, page.text) for i, page in enumerate(self.pages))
        with self._database:
            self._database.executemany("INSERT INTO pages(rowid, title, text) VALUES(?,?,?)", rows)
        self._database.execute("CREATE VIRTUAL TABLE words USING fts5vocab(pages, row)")
        half = len(self.pages) / 2
        frequent = self._database.execute("SELECT term FROM words WHERE doc > ?", (half,))
        self._frequent = frozenset(term for (term,) in frequent)

    def search(self, query: str, top_k: int) -> tuple[Page, ...]:
        """At most `top_k` pages with a word of the query, by score; ties in the pages' order."""
        return tuple(page for page, _ in self.scored(query, top_k))

    def scored(self, query: str, top_k: int) -> list[tuple[Page, float]]:
        """The pages of `search` with their scores."""
        words = query_words(query)
        words = [word for word in words if word not in self._frequent] or words
        if not words:
            return []
        expression = " OR ".join(f'"{word}"' for word in words)
        with self._lock:
            rows = self._database.execute(
                "SELECT rowid, -bm25(pages) AS score FROM pages WHERE pages MATCH ? "
                "ORDER BY score DESC, rowid LIMIT ?",
                (expression, top_k),
            ).fetchall()
        return [(self.pages[row], score) for row, score in rows]

    def page(self, title: str) -> Page | None:
        """The page of exactly this title."""
        place = self._by_title.get(title.strip())
        return None if place is None else self.pages[place]


def snippet(page: Page, query: str, characters: int = 160) -> str:
    """The part of a page's text around the first word of the query in it."""
    if len(page.text) <= characters:
        return page.text
    words = "|".join(map(re.escape, query_words(query)))
    match = re.search(rf"\b(?:{words})\b", page.text, re.IGNORECASE) if words else None
    start = max(0, min((match.start() if match else 0) - 20, len(page.text) - characters))
    end = start + characters
    before, after = "..." if start else "", "..." if end < len(page.text) else ""
    return f"{before}{page.text[start:end].strip()}{after}"

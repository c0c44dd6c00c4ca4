"""Questions in HotpotQA's form (arXiv 1809.09600) and folders of pages, as JSON lines."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentrl_jax.envs.page_index import Page, PageIndex
from agentrl_jax.envs.search.questions import Hop, Question
from agentrl_jax.errors import UserError


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's place and object."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number} is not JSON: {error.msg}") from error
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number} must be a JSON object")
        yield f"{path}, line {number}", row


def _text(place: str, row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{place} needs a text {key!r}")
    return value.strip()


def read_pages(folder: str) -> list[Page]:
    """The pages of all *.jsonl files of a folder, lines of {"title" or "id", "text"}.

    Raises:
        UserError: there is none, or a line has another form, or a title occurs twice.
    """
    pages: dict[str, Page] = {}
    for path in sorted(Path(folder).glob("*.jsonl")):
        for place, row in _rows(path):
            title = _text(place, row, "title" if "title" in row else "id")
            if title in pages:
                raise UserError(f"{place}: the title {title!r:.80} occurs twice")
            pages[title] = Page(title, _text(place, row, "text"))
    if not pages:
        raise UserError(f"{folder} must be a folder with *.jsonl files of pages")
    return list(pages.values())


def _pairs(place: str, row: dict[str, Any], key: str, second: str) -> list[tuple[str, Any]]:
    """HotpotQA's [[title, x], ...], or {"title": [...], second: [...]}."""
    value = row.get(key, [])
    if isinstance(value, dict):
        value = list(zip(value.get("title", []), value.get(second, [])))
    is_valid = isinstance(value, list) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in value
    )
    if not is_valid:
        raise UserError(f"{place}: {key!r} must be a list of [title, {second}]")
    return [(pair[0].strip(), pair[1]) for pair in value]


@lru_cache(maxsize=4)
def read_questions(path: str) -> tuple[tuple[Question, ...], tuple[Page, ...]]:
    """The questions of a file, and the pages of their contexts.

    A line has `question`, `answer`, and may have `type`, `supporting_facts` and `context`.

    Raises:
        UserError: there is none, or a line has another form.
    """
    questions, pages = [], {}
    for place, row in _rows(Path(path)):
        text, answer = _text(place, row, "question"), _text(place, row, "answer")
        facts = _pairs(place, row, "supporting_facts", "sent_id")
        titles = dict.fromkeys(title for title, _ in facts)
        hops = tuple(Hop((title, f"{title} {text}"), (title,)) for title in titles)
        questions.append(Question(text, (answer,), str(row.get("type", "")), hops))
        for title, sentences in _pairs(place, row, "context", "sentences"):
            if not isinstance(sentences, list) or not all(isinstance(s, str) for s in sentences):
                raise UserError(f"{place}: the sentences of {title!r:.80} must be texts")
            body = "".join(sentences).strip()
            if title and body:
                pages.setdefault(title, Page(title, body))
    if not questions:
        raise UserError(f"{path} has no question")
    return tuple(questions), tuple(pages.values())


@lru_cache(maxsize=4)
def file_pages(folder: str, questions: str) -> tuple[Page, ...]:
    """The pages of a folder; without one, those in the questions' contexts."""
    pages = tuple(read_pages(folder)) if folder else read_questions(questions)[1]
    if not pages:
        raise UserError(f"{questions} has no contexts: name the pages' folder")
    return pages


@lru_cache(maxsize=4)
def file_index(folder: str, questions: str) -> PageIndex:
    """The index of `file_pages`."""
    return PageIndex(file_pages(folder, questions))

"""Folders of questions and databases in the form of Spider and BIRD."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.envs.sql.questions import Question
from agentrl_jax.errors import UserError

# Order is asked for where the reference query ends with it.
_ORDER = "order by"


@dataclass(frozen=True)
class QuestionFolder:
    """The questions of one file of a folder, and where its databases are."""

    path: Path
    questions: tuple[Question, ...]

    def database_path(self, name: str) -> Path:
        return _database_path(self.path, name)


def _database_path(folder: Path, name: str) -> Path:
    return folder / "database" / name / f"{name}.sqlite"


def read_folder(folder: str, questions_file: str = "") -> QuestionFolder:
    """The questions of a folder with tables.json, database/NAME/NAME.sqlite and questions in JSON.

    A question has `db_id`, `question`, the reference query as `query` (Spider, arXiv 1809.08887) or
    `SQL` (BIRD, arXiv 2305.03111), and possibly `evidence`.

    Args:
        folder: its path.
        questions_file: its file of questions; "": the only JSON file beside tables.json.

    Raises:
        UserError: a file is missing or damaged, or a question has no such field.
    """
    path = Path(folder)
    if not path.is_dir():
        raise UserError(f"{path} is not a folder of databases: set folder to one that exists")
    tables = _read_list(path / "tables.json")
    known = {_text_of(path / "tables.json", i, table, "db_id") for i, table in enumerate(tables)}
    name = questions_file or _only_questions_file(path)
    questions = []
    for i, entry in enumerate(_read_list(path / name)):
        database = _text_of(path / name, i, entry, "db_id")
        if database not in known:
            raise UserError(f"{path / name}, question {i}: tables.json has no {database!r}")
        sql = _text_of(path / name, i, entry, "query" if "query" in entry else "SQL")
        evidence = str(entry.get("evidence") or "")
        text = _text_of(path / name, i, entry, "question")
        is_ordered = _ORDER in " ".join(sql.lower().rpartition(")")[2].split())
        questions.append(Question(text, sql, database, evidence=evidence, is_ordered=is_ordered))
    if not questions:
        raise UserError(f"{path / name} has no questions")
    for database in sorted({str(question.database) for question in questions}):
        if not _database_path(path, database).is_file():
            raise UserError(f"there is no database {_database_path(path, database)}")
    return QuestionFolder(path, tuple(questions))


def _only_questions_file(path: Path) -> str:
    names = sorted(file.name for file in path.glob("*.json") if file.name != "tables.json")
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise UserError(f"{path}: set questions_file to one of its files of questions ({listed})")
    return names[0]


def _read_list(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise UserError(f"{path} must hold a list of objects")
    return content


def _text_of(path: Path, index: int, entry: dict[str, Any], field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{path}, entry {index}: {field!r} must be a text")
    return value

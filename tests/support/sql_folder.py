"""A folder of databases and questions in Spider's or BIRD's form."""

import json
import sqlite3
from pathlib import Path


def write_folder(path: Path, sql_field: str = "query") -> Path:
    """A folder in Spider's form with one database and two questions."""
    file = path / "database" / "farm" / "farm.sqlite"
    file.parent.mkdir(parents=True)
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE cow (name TEXT, litres REAL)")
    connection.executemany("INSERT INTO cow VALUES (?, ?)", [("Berta", 20.5), ("Alma", 31.0)])
    connection.commit()
    connection.close()
    tables = [{"db_id": "farm", "table_names_original": ["cow"]}]
    (path / "tables.json").write_text(json.dumps(tables))
    queries = ["SELECT count(*) FROM cow", "SELECT name FROM cow ORDER BY litres DESC"]
    questions = [
        {"db_id": "farm", "question": f"Question {i}?", sql_field: q, "evidence": "litres a day"}
        for i, q in enumerate(queries)
    ]
    (path / "dev.json").write_text(json.dumps(questions))
    return path

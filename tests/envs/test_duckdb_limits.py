"""Questions on DuckDB: answers equal to SQLite's, and what a query may not do there.

Needs the extra duckdb, but for what is said where it is missing.
"""

import importlib.util
import os
import time
from pathlib import Path

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.sql import duckdb_database
from agentrl_jax.envs.sql.dialects import DIALECTS
from agentrl_jax.envs.sql.duckdb_database import DuckdbDatabase
from agentrl_jax.envs.sql.questions import SPLITS, DatabaseKey, draw_question
from agentrl_jax.envs.sql.read_only_database import DEFAULT_LIMITS, QueryLimits
from agentrl_jax.envs.sql.results import equal_results, result_text
from agentrl_jax.envs.sql.sql_questions import SqlQuestions
from agentrl_jax.errors import EnvironmentFailure, UserError

needs_duckdb = pytest.mark.skipif(
    importlib.util.find_spec("duckdb") is None, reason="needs the package duckdb"
)
COUNT = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r{}) "
REFUSED = {
    "DELETE FROM t": "not DELETE",
    "INSERT INTO t VALUES (1)": "not INSERT",
    "UPDATE t SET n = 2": "not UPDATE",
    "TRUNCATE t": "not DELETE",
    "DROP TABLE t": "not DROP",
    "CREATE TABLE u (n INTEGER)": "not CREATE",
    "CREATE TEMP TABLE u (n INTEGER)": "not CREATE",
    "CREATE VIEW u AS SELECT 1": "not CREATE",
    "CREATE MACRO f(x) AS x": "not CREATE",
    "CREATE SECRET s (TYPE s3)": "not CREATE",
    "ALTER TABLE t RENAME TO u": "not ALTER",
    "ATTACH 'other.db' AS o": "not ATTACH",
    "ATTACH ':memory:' AS o": "not ATTACH",
    "DETACH memory": "not DETACH",
    "USE memory": "not",
    "COPY t TO 'other.csv'": "not COPY",
    "COPY t FROM 'other.csv'": "not COPY",
    "COPY (SELECT 1) TO '/dev/stdout'": "not COPY",
    "EXPORT DATABASE 'other'": "not EXPORT",
    "IMPORT DATABASE 'other'": "",
    "INSTALL httpfs": "not",
    "LOAD httpfs": "not LOAD",
    "LOAD '/tmp/x.duckdb_extension'": "not LOAD",
    "SET threads = 8": "not SET",
    "SET memory_limit = '90GB'": "not SET",
    "SET enable_external_access = true": "not SET",
    "SET VARIABLE v = 1": "not SET",
    "RESET threads": "not",
    "PRAGMA memory_limit = '90GB'": "not",
    "PRAGMA table_info('t')": "not PRAGMA",
    "CALL pragma_table_info('t')": "not CALL",
    "CHECKPOINT": "not",
    "VACUUM": "not VACUUM",
    "ANALYZE": "not VACUUM",
    "BEGIN": "not TRANSACTION",
    "COMMIT": "not TRANSACTION",
    "ROLLBACK": "not TRANSACTION",
    "PREPARE v AS SELECT 1": "not PREPARE",
    "EXECUTE v": "not EXECUTE",
    "EXPLAIN ANALYZE DELETE FROM t": "not EXPLAIN",
    "PIVOT t ON n USING count(*)": "not",
    "WITH x AS (SELECT 1) DELETE FROM t": "not DELETE",
    "WITH x AS (DELETE FROM t RETURNING n) SELECT * FROM x": "read-only",
    "WITH x AS (INSERT INTO t VALUES (1) RETURNING n) SELECT * FROM x": "read-only",
    "WITH x AS (UPDATE t SET n = 2 RETURNING n) SELECT * FROM x": "read-only",
    "SELECT * FROM read_csv('/etc/passwd')": "Permission Error",
    "SELECT * FROM read_text('/etc/passwd')": "Permission Error",
    "SELECT * FROM read_blob('/proc/self/environ')": "Permission Error",
    "SELECT * FROM read_json('/etc/passwd')": "Permission Error",
    "SELECT * FROM read_parquet('x.parquet')": "Permission Error",
    "SELECT * FROM parquet_metadata('x.parquet')": "Permission Error",
    "SELECT * FROM sniff_csv('/etc/passwd')": "Permission Error",
    "SELECT * FROM glob('/*')": "Permission Error",
    "SELECT * FROM '/etc/passwd'": "",
    "SELECT * FROM 'x.csv'": "",
    "SELECT * FROM read_csv('https://example.com/x.csv')": "",
    "SELECT * FROM query('DELETE FROM t RETURNING n')": "",
    "SELECT json_execute_serialized_sql('x')": "",
    "SELECT getenv('HOME')": "",
    "SELECT nextval('s')": "",
    "SELECT * FROM databases": "does not exist",
    "SELECT * FROM sys": "does not exist",
    "SELECT 1; SELECT 2": "one statement at a time",
    "SELECT 1; DROP TABLE t": "one statement at a time",
    "SELECT n FROM t WHERE n = 1; DELETE FROM t; --": "one statement at a time",
    "SELECT * FROM nowhere": "does not exist",
    "SELECT": "",
    "": "only SELECT",
    "-- a comment": "only SELECT",
    "SELECT '\x00'": "no text",
    "SELECT '\ud800'": "no text",
    "SELECT ?": "",
    "SELECT " + "(" * 4000 + "1" + ")" * 4000: "expression depth",
    "SELECT " + "1+" * 4000 + "1": "",
    "SELECT " + "NOT " * 2400 + "true": "",
    "SELECT " + "[" * 4000 + "]" * 4000: "",
    "SELECT '" + "x" * 20_000 + "'": "too large",
    "SELECT repeat('x', 200000)": "too big",
    "SELECT CAST('x' AS INTEGER)": "Conversion Error",
}  # fmt: skip
BOMBS = {
    "an endless recursion": (COUNT.format("") + "SELECT count(*) FROM r", "stopped after 1 s"),
    "an endless result": (COUNT.format("") + "SELECT x FROM r", None),
    "an endless range": ("SELECT count(*) FROM range(10000000000000)", "stopped after 1 s"),
    "a join of all with all": (
        "SELECT count(*) FROM t a, t b, t c, t d, t e, t f WHERE a.n + f.n + b.n + c.n + d.n = e.n",
        "stopped after 1 s",
    ),
    "a sleep": ("SELECT pg_sleep(20)", "stopped after 1 s"),
    "open parentheses": ("SELECT " + "(" * 4000, ""),
    "a text that doubles": (
        "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) SELECT s FROM r",
        "too",
    ),
    "one long text": ("SELECT length(repeat('x', 4000000000))", "too much memory"),
    "long texts in many rows": (
        "WITH w AS (SELECT repeat('x', 8000000) AS s) "
        f"SELECT length({'||'.join(['s'] * 50)}) FROM w, t",
        "too much memory",
    ),
    "a sort of long texts": (
        "SELECT repeat('x', 5000) || a.n || b.n || c.n AS s FROM t a, t b, t c ORDER BY s",
        "too much memory",
    ),
    "groups of long texts": (
        "SELECT a.n, b.n, string_agg(repeat('x', 9000), '') FROM t a, t b, t c GROUP BY 1, 2",
        "too much memory",
    ),
    "arrays of arrays": ("SELECT CAST(NULL AS INTEGER[90000][90000])", "too much memory"),
    "a list of everything": ("SELECT list(x) FROM range(1000000000) AS r(x)", "too much memory"),
}  # fmt: skip


def small_database(limits: QueryLimits = DEFAULT_LIMITS) -> DuckdbDatabase:
    return DuckdbDatabase(["CREATE TABLE t (n INTEGER)"], {"t": [list(range(60))]}, limits)


@needs_duckdb
def test_what_is_no_select_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    database = small_database()
    server = duckdb_database._SERVER
    database.query("SELECT 1")
    process = server._process
    for sql, message in REFUSED.items():
        result = database.query(sql)
        assert result.error and message in result.error and "\n" not in result.error, sql[:80]
        assert result.rows == () and result.error.isprintable() and len(result.error) <= 300
    assert server._process is process  # none of them ended it
    assert database.query("SELECT count(*), sum(n) FROM t").rows == ((60, 1770),)
    assert database.query("SELECT name FROM sqlite_master").rows == (("t",),)
    assert list(tmp_path.iterdir()) == []


@needs_duckdb
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped(name: str):
    sql, message = BOMBS[name]
    database, start = small_database(QueryLimits(seconds=1.0)), time.monotonic()
    result = database.query(sql)
    assert time.monotonic() - start < 8  # the start of the process included
    if message is None:
        assert result.error is None and result.is_cut and len(result.rows) == 1000
    else:
        assert result.error is not None and message in result.error
    assert database.query("SELECT count(*) FROM t").rows == ((60,),)


@needs_duckdb
def test_a_process_that_ends_or_hangs_is_an_answer_and_the_next_query_runs():
    database, server = small_database(QueryLimits(seconds=0.1)), duckdb_database._SERVER
    database.query("SELECT 1")
    assert server._process is not None
    os.kill(server._process.pid, 19)  # stopped: it does not answer
    assert database.query("SELECT 1").error == "the query was stopped after 0.1 s"
    assert database.query("SELECT 1").rows == ((1,),)
    server._process.kill()
    assert database.query("SELECT 1").error == "the query ended the database's process"
    assert database.query("SELECT count(*) FROM t").rows == ((60,),)


@needs_duckdb
def test_a_database_that_cannot_be_made_is_a_failure_of_the_environment():
    database = DuckdbDatabase(["CREATE TABLE t (n INTEGER)"], {"t": [["x"]]})
    with pytest.raises(EnvironmentFailure, match="did not make the database"):
        database.query("SELECT 1")


@needs_duckdb
def test_more_databases_than_are_held_are_made_again():
    databases = [DuckdbDatabase(["CREATE TABLE t (n INTEGER)"], {"t": [[i]]}) for i in range(20)]
    for _ in range(2):
        for i, database in enumerate(databases):
            assert database.query("SELECT n FROM t").rows == ((i,),)


@needs_duckdb
def test_values_are_numbers_and_texts():
    values = {
        "1.50": 1.5, "true": 1, "NULL": None, "'ü'": "ü", "DATE '2024-03-09'": "2024-03-09",
        "TIMESTAMP '2024-03-09 10:00:00'": "2024-03-09 10:00:00", "'ab'::BLOB": "x'6162'",
        "[1, 2]": "[1, 2]", "'nan'::DOUBLE": "nan", "7 / 2": 3, "7 / 2.0": 3.5,
        "12345678901234567890123": 12345678901234567890123,
    }  # fmt: skip
    result = small_database().query(f"SELECT {', '.join(values)}")
    assert result.error is None and result.rows == (tuple(values.values()),)
    assert equal_results(result.rows, [tuple(values.values())], "strict", True)
    assert "1.5" in result_text(result, 2000)


@needs_duckdb
@pytest.mark.parametrize("split", SPLITS)
def test_reference_queries_return_the_same_in_both_dialects(split: str):
    rng = np.random.default_rng(SPLITS.index(split))
    for _ in range(60):
        question = draw_question(rng, split, 1.0)
        assert isinstance(question.database, DatabaseKey)
        sqlite, duckdb = (
            open_it(question.database, DEFAULT_LIMITS) for open_it in DIALECTS.values()
        )
        assert list(sqlite.tables()) and sqlite.tables().keys() == duckdb.tables().keys()
        for sql in (question.sql, *question.looks):
            expected, result = sqlite.query(sql), duckdb.query(sql)
            assert expected.error is result.error is None, (sql, result.error)
            assert result.columns == expected.columns or {"(", "/"} & {*sql}
            is_ordered = question.is_ordered or sql in question.looks
            assert equal_results(result.rows, expected.rows, "strict", is_ordered), sql


@needs_duckdb
@pytest.mark.parametrize("schema_view", ["full", "none"])
def test_an_episode_on_duckdb(schema_view: str):
    options = {"dialect": "duckdb", "difficulty": 1.0, "schema_view": schema_view}
    env = make("agentrl/SqlQuestions-v0", options)
    for seed in range(6):
        assert play_scripted_episode(env, "recovering", seed).success is True
        play_scripted_episode(env, "random", seed)
    assert isinstance(env, SqlQuestions) and isinstance(env.database, DuckdbDatabase)
    assert schema_view == "none" or "VARCHAR" in env._opening[0].text
    assert ";;" not in env._opening[0].text


def test_what_the_dialect_needs_and_excludes_is_said(monkeypatch, tmp_path: Path):
    with pytest.raises(UserError, match="dialect"):
        make("agentrl/SqlQuestions-v0", {"dialect": "oracle"})
    monkeypatch.setattr(duckdb_database, "package_folder", str)
    monkeypatch.setattr("agentrl_jax.envs.sql.dialects.package_folder", str)
    for option in ({"steps": 5000}, {"folder": str(tmp_path)}):
        with pytest.raises(UserError, match="dialect duckdb"):
            make("agentrl/SqlQuestions-v0", {"dialect": "duckdb", **option})


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'agentrl_jax\[duckdb\]'"):
        make("agentrl/SqlQuestions-v0", {"dialect": "duckdb"})

"""What a query may not do: it is refused or stopped, and neither file nor process is harmed."""

import resource
import sqlite3
import time
from pathlib import Path

import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.sql.read_only_database import QueryLimits
from agentrl_jax.envs.sql.sql_questions import SqlQuestions
from agentrl_jax.envs.sql.sqlite_database import FUNCTIONS, SqliteDatabase
from agentrl_jax.errors import EnvironmentFailure, UserError

COUNT = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r{}) "
REFUSED = {
    "DELETE FROM t": "not DELETE",
    "INSERT INTO t VALUES (1)": "not INSERT",
    "UPDATE t SET n = 2": "not UPDATE",
    "DROP TABLE t": "only SELECT",
    "CREATE TABLE u (n)": "only SELECT",
    "CREATE TEMP TABLE u (n)": "only SELECT",
    "CREATE VIEW u AS SELECT 1": "only SELECT",
    "ALTER TABLE t RENAME TO u": "only SELECT",
    "ATTACH 'other.db' AS o": "not ATTACH",
    "ATTACH ':memory:' AS o": "not ATTACH",
    "DETACH main": "not DETACH",
    "VACUUM INTO 'other.db'": "",
    "VACUUM": "",
    "REINDEX": "",
    "ANALYZE": "",
    "PRAGMA query_only = OFF": "not PRAGMA",
    "PRAGMA hard_heap_limit = 0": "not PRAGMA",
    "PRAGMA writable_schema = ON": "not PRAGMA",
    "SELECT * FROM pragma_database_list": "",
    "BEGIN": "not TRANSACTION",
    "COMMIT": "not TRANSACTION",
    "SAVEPOINT s": "not SAVEPOINT",
    "EXPLAIN DELETE FROM t": "not DELETE",
    "REPLACE INTO t VALUES (1)": "not INSERT",
    "WITH x AS (SELECT 1) DELETE FROM t": "not DELETE",
    "SELECT load_extension('x')": "load_extension is not allowed",
    "SELECT readfile('/etc/passwd')": "no such function",
    "SELECT writefile('x', 'y')": "no such function",
    "SELECT randomblob(1000000000)": "randomblob is not allowed",
    "SELECT zeroblob(1000000000)": "zeroblob is not allowed",
    "SELECT printf('%.*c', 1000000000, 'x')": "printf is not allowed",
    "SELECT format('%1000000000d', 1)": "format is not allowed",
    "SELECT hex('x')": "hex is not allowed",
    "SELECT replace('aaa', 'a', 'bbb')": "replace is not allowed",
    "SELECT random()": "random is not allowed",
    "SELECT fts3_tokenizer('x')": "",
    "SELECT sqlite_compileoption_get(1)": "is not allowed",
    "SELECT 1; SELECT 2": "one statement at a time",
    "SELECT 1; DROP TABLE t": "one statement at a time",
    "SELECT n FROM t WHERE n = '1'; DELETE FROM t; --": "",
    "SELECT * FROM nowhere": "no such table",
    "SELECT": "incomplete input",
    "": "only SELECT",
    "-- a comment": "only SELECT",
    "SELECT '\x00'": "",
    "SELECT '\ud800'": "",
    "SELECT ?": "",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000: "",
    "SELECT " + "1+" * 4000 + "1": "",
    "SELECT '" + "x" * 20_000 + "'": "too large",
    "SELECT 1" + " UNION SELECT 1" * 200: "too many terms",
    "SELECT " + ", ".join("n" for _ in range(800)) + " FROM t": "too many columns",
    "SELECT abs(-9223372036854775808)": "integer overflow",
    "SELECT 'x' LIKE '" + "%" * 3000 + "'": "",
}  # fmt: skip
BOMBS = {
    "an endless recursion": (COUNT.format("") + "SELECT count(*) FROM r", "steps"),
    "an endless result": (COUNT.format("") + "SELECT x FROM r", None),
    "a join of all with all": (
        "SELECT count(*) FROM t a, t b, t c, t d, t e WHERE a.n + b.n + c.n + d.n + e.n = 7",
        "steps",
    ),
    "a sort of everything": (
        COUNT.format(" LIMIT 10000000") + "SELECT x FROM r ORDER BY -x",
        "steps",
    ),
    "a text that doubles": (
        "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) SELECT s FROM r",
        "too big",
    ),
    "a text of everything": (
        COUNT.format(" LIMIT 60000") + "SELECT group_concat(x) FROM r",
        "too big",
    ),
    "a sort of long texts": (
        "WITH w(s) AS MATERIALIZED "
        "(SELECT group_concat('xxxxxxxxx') FROM (SELECT a.n FROM t a, t b, t c LIMIT 9900)) "
        "SELECT w.s || a.n || b.n || c.n AS s FROM t a, t b, t c, w ORDER BY s",
        "too much memory",
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "t.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE t (n INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(60)])
    connection.commit()
    connection.close()
    return file


@pytest.mark.parametrize("is_file", [False, True])
def test_what_is_no_select_is_refused(path: Path, is_file: bool, monkeypatch):
    monkeypatch.chdir(path.parent)
    before = path.read_bytes()
    database = SqliteDatabase(path if is_file else before)
    for sql, message in REFUSED.items():
        result = database.query(sql)
        assert result.error and message in result.error and "\n" not in result.error, sql[:80]
        assert result.rows == () and result.error.isprintable()
    assert database.query("SELECT count(*) FROM t").rows == ((60,),)
    assert database.query("SELECT sum(n) FROM t").rows == ((1770,),)
    database.close()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["t.sqlite"]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped(path: Path, name: str):
    sql, message = BOMBS[name]
    database = SqliteDatabase(path)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    result = database.query(sql)
    assert time.monotonic() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # KiB
    if message is None:
        assert result.error is None and result.is_cut and len(result.rows) == 1000
    else:
        assert result.error is not None and message in result.error
    assert database.query("SELECT count(*) FROM t").rows == ((60,),)


def test_the_deadline_stops_a_query(path: Path):
    database = SqliteDatabase(path, QueryLimits(steps=10**12, seconds=0.05))
    result = database.query(BOMBS["an endless recursion"][0])
    assert result.error == "the query was stopped after 0.05 s"


def test_common_functions_are_allowed(path: Path):
    database = SqliteDatabase(path)
    for sql, value in {
        "SELECT strftime('%Y', '2024-03-09')": "2024",
        "SELECT CAST(substr('09.03.2024', 7, 4) AS INTEGER)": 2024,
        "SELECT group_concat(n) FROM (SELECT n FROM t LIMIT 3)": "0,1,2",
        "SELECT max(row_number) FROM (SELECT row_number() OVER (ORDER BY n) AS row_number FROM t)": 60,  # noqa: E501
        "SELECT iif(upper('a') LIKE 'A%', coalesce(NULL, round(2.25, 1)), 0)": 2.3,
        "SELECT julianday('2024-03-09') - julianday('2024-03-08')": 1.0,
        "SELECT sql FROM sqlite_master": "CREATE TABLE t (n INTEGER)",
    }.items():
        result = database.query(sql)
        assert result.error is None and result.rows == ((value,),), (sql, result)
    assert "count" in FUNCTIONS and "load_extension" not in FUNCTIONS


def test_a_limit_is_an_answer_and_the_episode_goes_on():
    env = make("agentrl/SqlQuestions-v0", {"horizon": 9})
    assert isinstance(env, SqlQuestions)
    env.reset(seed=0)
    bomb = BOMBS["an endless recursion"][0]
    (text,), reward, terminated, truncated, info = env.step(f"<think>x</think><sql>{bomb}</sql>")
    assert "Error: the query was stopped after 2000000 steps" in text.text
    assert info["query_failed"] and not (terminated or truncated or reward)
    (text,), *_ = env.step("<think>x</think><sql>DROP TABLE t</sql>")
    assert "no such table" in text.text or "only SELECT" in text.text
    *_, info = env.step(f"<think>x</think><solution>{bomb}</solution>")
    assert info["success"] is False


def test_a_damaged_database_is_a_failure_of_the_environment(path: Path):
    pages = bytearray(path.read_bytes())
    pages[4096:] = b"\xff" * (len(pages) - 4096)  # the table's pages, not the schema's
    path.write_bytes(pages)
    database = SqliteDatabase(path)
    with pytest.raises(EnvironmentFailure, match="cannot be read"):
        database.query("SELECT * FROM t")
    path.write_bytes(b"x" * 9000)
    with pytest.raises(UserError, match="cannot be read as a SQLite database"):
        SqliteDatabase(path)


def test_a_reference_query_that_fails_is_a_failure_of_the_environment():
    env = make("agentrl/SqlQuestions-v0", {"steps": 1000, "difficulty": 1.0})
    assert isinstance(env, SqlQuestions)
    with pytest.raises(EnvironmentFailure, match="has no result: the query was stopped"):
        for seed in range(40):
            env.reset(seed=seed)
            assert env.gold.rows is not None

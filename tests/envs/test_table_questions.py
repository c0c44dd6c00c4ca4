"""`TableQuestions`: generated tables, chains of tasks, programs, checks and the protocol."""

import json
import random

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.code.scripted import call_python
from agentrl_jax.envs.code.tables.kinds import HELD_OUT_KINDS, KINDS, draw_table
from agentrl_jax.envs.code.tables.problems import (
    DATABASE,
    OrderedItems,
    RelativeNumber,
    answer_text,
    check_of,
    database_bytes,
    problem_of,
)
from agentrl_jax.envs.code.tables.questions import (
    HELD_OUT_OPERATIONS,
    OPERATIONS,
    SPLITS,
    compose,
    draw_question,
    shared_questions,
)
from agentrl_jax.envs.code.tables.table_questions import TableQuestions
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, ToolCall
from agentrl_jax.sandbox.ladder import SandboxConfig
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.python_tool import PythonTool, shared_sandbox
from agentrl_jax.sandbox.snippet import Snippet


def make_questions(seed: int = 0, **options) -> TableQuestions:
    env = make("agentrl/TableQuestions-v0", options)
    assert isinstance(env, TableQuestions)
    env.reset(seed=seed)
    return env


def run_program(problem) -> str:
    """The last line that the problem's program prints in the sandbox."""
    sandbox = shared_sandbox(SandboxConfig(limits=SandboxLimits()))
    outcome = sandbox.run(Snippet(f"{problem.prelude}\n{problem.program}", files=problem.files))
    assert outcome.succeeded, (problem.program, outcome)
    return outcome.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("source", ["csv", "sql"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_programs_find_what_the_records_give(operation: str, source: str):
    """Code on the file or SQL on the database, against the rows before they were stored."""
    rng, chains = np.random.default_rng(sorted(OPERATIONS).index(operation)), set()
    for _ in range(400):
        kind = list(KINDS.values())[int(rng.integers(len(KINDS)))]
        selections = int(rng.integers(3))
        question = compose(rng, draw_table(rng, kind, 0.6), [operation], selections)
        if question is None or selections in chains:
            continue
        if source == "sql" and not question.sql:
            continue
        problem = problem_of(question, source, True)
        printed = run_program(problem)
        assert problem.check(printed, lambda code: pytest.fail("runs nothing")), (problem, printed)
        chains.add(selections)
        if len(chains) == 3:
            break
    without_sql = operation in ("median", "deviation", "correlation", "outliers")
    assert len(chains) == (0 if without_sql and source == "sql" else 3)


def test_a_wrong_answer_is_wrong():
    for seed in range(40):
        question = draw_question(np.random.default_rng(seed), "train", 0.5, "csv")
        check, answer = check_of(question.answer), question.answer
        assert check(answer_text(answer), lambda code: pytest.fail("runs nothing"))
        if isinstance(answer, tuple):
            wrong = ", ".join(answer[::-1])
        elif isinstance(answer, str):
            wrong = {"yes": "no", "no": "yes"}.get(answer, f"{answer}x")
        else:
            wrong = str(1.04 * answer + 0.01)
        assert not check(wrong, lambda code: pytest.fail("runs nothing")), (question, wrong)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [("100", True), ("103", True), ("97.1", True), ("103.1", False), ("100 %", True)]
    + [(text, False) for text in ("", "nan", "inf", "1e9999", "100 euros", "-100", "1" * 100)],
)
def test_numbers_are_right_within_three_percent(answer: str, is_right: bool):
    assert RelativeNumber(100.0)(answer, lambda code: pytest.fail("runs nothing")) == is_right


def test_items_have_an_order():
    check = OrderedItems(("a", "b", "c"))
    for answer, is_right in {"a, b, c": 1, "['a', 'b', 'c']": 1, "b, a, c": 0, "a, b": 0}.items():
        assert check(answer, lambda code: pytest.fail("runs nothing")) == bool(is_right)


def test_the_splits_share_nothing_with_training():
    assert shared_questions(60) == 0
    for split in SPLITS:
        rng = np.random.default_rng(3)
        for _ in range(30):
            question = draw_question(rng, split, 0.4, "csv")
            assert (question.table.kind.name in HELD_OUT_KINDS) == (split == "kinds")
            if split != "kinds":
                assert (question.operation in HELD_OUT_OPERATIONS) == (split == "operations")


def test_difficulty_adds_rows_empty_cells_and_selections():
    easy, hard = (
        [draw_question(np.random.default_rng(i), "train", d, "csv") for i in range(30)]
        for d in (0.0, 1.0)
    )
    assert {len(q.table.rows) for q in easy} == {12}
    assert {len(q.table.rows) for q in hard} == {240}
    cells = [[v for row in q.table.rows for v in row.values()] for q in (easy[0], hard[0])]
    assert None not in cells[0] and None in cells[1]
    assert all("Find the" not in q.text for q in easy)
    assert any(q.text.count("Find the") == 2 for q in hard)


@pytest.mark.parametrize("schema", [True, False])
@pytest.mark.parametrize("source", ["csv", "sql"])
def test_the_expert_solves_every_question(source: str, schema: bool):
    for seed in range(4):
        env = make_questions(seed, source=source, schema=schema, difficulty=0.6)
        assert play_scripted_episode(env, "expert", seed).succeeded, env.problem
        assert env.calls == 1 + (not schema)
        env.close()


@pytest.mark.parametrize("source", ["csv", "sql"])
def test_the_recovering_policy_mends_its_programs(source: str):
    calls = []
    for seed in range(8):
        env = make_questions(seed, source=source, difficulty=0.0)
        assert play_scripted_episode(env, "recovering", seed).succeeded, env.problem
        calls.append(env.calls)
        env.close()
    assert {*calls} == {1, 2}  # some failed first


def test_a_database_is_read_by_sql_only():
    env = make_questions(1, source="sql")
    for code in (
        "execute_sql('DELETE FROM sqlite_master')",
        "execute_sql('WITH a AS (SELECT 1) DELETE FROM sqlite_master')",
    ):
        (message,), _, terminated, *_, info = env.step(call_python("", code))
        assert info["code_failed"] and not terminated and "Error" in message.text
    (message,), *_ = env.step(call_python("", "get_db_info()"))
    assert "CREATE TABLE" in message.text
    name = message.text.split("CREATE TABLE ")[1].split()[0]
    code = f"execute_sql('SELECT COUNT(*) AS n FROM {name}', 'a.csv'); print(open('a.csv').read())"
    (message,), *_ = env.step(call_python("", code))
    assert message.text.startswith("<interpreter>\nn\n")
    env.close()


def test_each_call_runs_the_earlier_code_again_without_its_output():
    env = make_questions(2)
    env.step(call_python("", "x = 40\nprint('first')\nopen('note', 'w').write('kept')"))
    (message,), *_ = env.step(call_python("", "print(x + 2, open('note').read())"))
    assert message.text == "<interpreter>\n42 kept\n</interpreter>"
    (message,), *_ = env.step(call_python("", "print('a' * 1500, 'b' * 1500)"))
    assert message.text.startswith("<interpreter>\n" + "a" * 1024 + "...\n[Output Truncated]\n...")
    assert message.text.endswith("b" * 1024 + "\n</interpreter>")
    env.close()


def test_a_turn_with_neither_code_nor_an_answer_ends_the_episode():
    env = make_questions(3)
    observation, reward, terminated, truncated, info = env.step("I do not know.")
    assert not observation and terminated and not truncated and reward == -0.1
    assert info["void"] and info["success"] is False
    assert info["rewards"] == {"outcome": 0.0, "format": -0.1}
    env.close()


@pytest.mark.parametrize(("answer", "reward"), [("gold", 1.0), ("wrong", 0.0)])
def test_rewards(answer: str, reward: float):
    env = make_questions(4)
    text = env.problem.answer if answer == "gold" else "nothing"
    *_, info = (result := env.step(f"<answer>{text}</answer>"))
    assert result[1] == reward and result[2] and info["success"] == bool(reward)
    env.close()


def test_an_episode_that_runs_out_of_turns_breaks_the_format():
    env = make_questions(5, horizon=2)
    env.step(call_python("", "print(1)"))
    _, reward, terminated, truncated, info = env.step(call_python("", "print(2)"))
    assert reward == -0.1 and truncated and not terminated and not info["success"]
    env.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": "xlsx"}, "source"),
        ({"split": "dev"}, "split"),
        ({"operations": ["sum"]}, "operations"),
        ({"operations": ["median"], "source": "sql"}, "median"),
        ({"operations": ["month"], "split": "train"}, "month"),
        ({"selections": 3}, "selections"),
        ({"difficulty": 1.5}, "difficulty"),
    ],
)
def test_wrong_options_get_one_sentence(options: dict, words: str):
    with pytest.raises(UserError, match=words):
        make("agentrl/TableQuestions-v0", options)


def test_files_need_a_session_that_is_replayed():
    with pytest.raises(UserError, match="replayed"):
        PythonTool().restart(files={"a": b""})


def test_the_rows_are_the_same_in_both_forms():
    table = draw_table(np.random.default_rng(0), KINDS["orders"], 0.6)
    files = {"orders.csv": table.csv_bytes(), DATABASE: database_bytes(table)}
    code = (
        "import csv, sqlite3\n"
        "a = list(csv.reader(open('orders.csv')))\n"
        f"b = sqlite3.connect('file:{DATABASE}?mode=ro', uri=True)\n"
        "c = b.execute('SELECT * FROM orders').fetchall()\n"
        "same = lambda x, y: x == ('' if y is None else str(y)) or float(x) == y\n"
        "print(len(a) - 1 == len(c), all(same(x, y) for p, q in zip(a[1:], c) "
        "for x, y in zip(p, q)))"
    )
    sandbox = shared_sandbox(SandboxConfig(limits=SandboxLimits()))
    assert sandbox.run(Snippet(code, files=files)).stdout.split() == ["True", "True"]


def test_parquet_holds_the_same_rows():
    pytest.importorskip("pyarrow")
    env = make_questions(6, source="parquet", difficulty=0.6)
    assert play_scripted_episode(env, "expert", 6).succeeded
    env.close()


def test_malformed_calls_are_answered():
    env = make_questions(7)
    rng = random.Random(0)
    for _ in range(6):
        text = "".join(rng.choice('{}"<>codeanswer/\\\n1') for _ in range(60))
        message = Message("assistant", "", (ToolCall("call_0", "python", json.dumps(text)),))
        *_, terminated, _, info = env.step(message)
        if terminated:
            assert info["void"]
            env.reset(seed=7)
    env.close()

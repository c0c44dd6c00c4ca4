"""`SqlQuestions`: generated databases, reference queries, grammar, rewards and folders."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode
from support.sql_folder import write_folder

from agentrl_jax.environment import make
from agentrl_jax.envs.sql.business import BUSINESSES
from agentrl_jax.envs.sql.grammar import (
    SQL_TOOL_FORMAT,
    is_well_formed,
    read_action,
    solution_text,
)
from agentrl_jax.envs.sql.questions import (
    SPLITS,
    TEMPLATES,
    DatabaseKey,
    image_of,
    records_of,
    schema_of,
    split_overlap,
)
from agentrl_jax.envs.sql.read_only_database import QueryResult
from agentrl_jax.envs.sql.results import equal_results, result_key, result_text
from agentrl_jax.envs.sql.scripted import call_sql
from agentrl_jax.envs.sql.sql_questions import SqlQuestions
from agentrl_jax.envs.sql.sqlite_database import SqliteDatabase
from agentrl_jax.envs.sql.templates import Scene, rounded
from agentrl_jax.envs.sql.validator import solution_result, validator_prompt
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message
from agentrl_jax.trajectories import Trajectory, Turn


def make_questions(seed: int = 0, **options) -> SqlQuestions:
    env = make("agentrl/SqlQuestions-v0", options)
    assert isinstance(env, SqlQuestions)
    env.reset(seed=seed)
    return env


@pytest.mark.parametrize("business", BUSINESSES)
def test_every_reference_query_returns_what_the_records_give(business: str):
    """Each template on eight schemas: SQL on the stored rows, Python on the records."""
    rng, templates, nonempty = np.random.default_rng(0), set(), set()
    for index in range(8):
        key = DatabaseKey(business, index, index, 120)
        database = SqliteDatabase(image_of(key))
        scene = Scene(schema_of(business, index), records_of(key), rng)
        for entry in TEMPLATES.values():
            if (draft := entry.draft(scene)) is None:
                continue
            result = database.query(draft.sql)
            assert result.error is None, (draft.sql, result.error)
            assert equal_results(result.rows, draft.rows, "strict", draft.is_ordered), draft
            templates.add(entry.name)
            nonempty |= {entry.name} if draft.rows else set()
    assert templates == nonempty == set(TEMPLATES)


def test_the_schemas_differ():
    schemas = [schema_of(name, i) for name in BUSINESSES for i in range(24)]
    assert len(BUSINESSES) >= 10 and len({tuple(s.statements()) for s in schemas}) >= 200
    for form, values in (("date_form", 4), ("status_form", 3), ("hint", 3), ("price_unit", 2)):
        assert len({getattr(schema, form) for schema in schemas}) == values
    assert {"city_decoy", "status_decoy"} <= {name for s in schemas for name in s.columns}
    for schema in schemas:
        for columns in schema.layout().values():
            names = [name.lower() for _, name, _ in columns]
            assert len(names) == len(set(names)), schema
        tables = [name.lower() for name in schema.tables.values()]
        assert len(tables) == len(set(tables)), schema


def test_held_out_splits_share_nothing_with_training():
    assert split_overlap(150) == {"schemas": 0, "templates": 0, "entities": 0, "questions": 0}


def test_an_episode_by_hand():
    env = make_questions(horizon=4)
    (opening,), info = env.reset(seed=1)
    assert opening.text.startswith("CREATE TABLE ") and env.question.text in opening.text
    assert [tool["function"]["name"] for tool in info["tools"]] == ["sql"]
    (text,), reward, terminated, _, info = env.step("<think>Look.</think><sql>SELECT 1 AS n</sql>")
    assert text.role == "user" and text.text == (
        "<observation>\nn\n1\n</observation>\n"
        "<reminder>You have 3 turns left to complete the task.</reminder>"
    )
    assert (reward, terminated, info["void"]) == (0.0, False, False)
    (text,), *_, info = env.step(call_sql("A call.", "SELECT 2 AS n"))
    assert text.role == "tool" and "n\n2\n" in text.text and "2 turns left" in text.text
    (text,), *_, info = env.step("<think>hello</think>")
    assert info["void"] and text.text.startswith("<observation>\nError: there is no complete query")
    _, reward, terminated, _, info = env.step(solution_text("Done.", env.question.sql))
    assert (reward, terminated, info["success"]) == (1.0, True, True)
    assert info["rewards"] == {"format": 0.0, "result": 1.0}


def test_rewards_of_wrong_and_malformed_episodes():
    env = make_questions()
    *_, info = env.step("<think>x</think><solution>SELECT 'no'</solution>")
    assert info["rewards"] == {"format": 0.0, "result": 0.0} and info["success"] is False
    env.reset(seed=0)
    _, reward, *_, info = env.step(f"<solution>{env.question.sql}</solution>")  # no thought
    assert reward == -1.0 and info["success"] is False and info["well_formed"] is False
    env.reset(seed=0)
    for _ in range(5):
        _, reward, terminated, truncated, info = env.step("<think>x</think><sql>SELECT 1</sql>")
    assert (reward, terminated, truncated, info["success"]) == (-1.0, False, True, False)
    env = make_questions(format_penalty=False)
    assert env.step("<solution>SELECT 1</solution>")[1] == 0.0


@pytest.mark.parametrize(
    "turns,expected",
    [
        (["<think>a</think><solution>s</solution>"], True),
        (["<think>a</think><sql>q</sql>", "<think>b</think><solution>s</solution>"], True),
        (["<think>a</think><sql>q</sql>", "<solution>s</solution>"], False),
        (["<think>a</think><sql>q</sql>", "so <think>b</think><solution>s</solution>"], False),
        (["<sql>q</sql>", "<think>b</think><solution>s</solution>"], True),
        (["<solution>s</solution>"], False),
        (["<think>a</think>"], False),
        (["<think>a</think><solution>s</solution><solution>t</solution>"], False),
        (["<think>a</think><solution><sql>s</sql></solution>"], False),
        (["<think>a</think><solution>s"], False),
        (["<think>a<solution>s</solution>"], False),
        (["<think>a</think><observation>1</observation><solution>s</solution>"], False),
    ],
)
def test_the_format_by_hand(turns: list[str], expected: bool):
    assert is_well_formed(turns) is expected


def test_actions_are_read():
    assert read_action("<sql>\n```sql\nSELECT 1\n```\n</sql>").query == "SELECT 1"
    assert read_action("<sql>a</sql><solution>b</solution>").kind == "sql"
    assert read_action("<sql>a<solution>b</solution>").query == "b"
    assert read_action("<sql>a").kind == "" == read_action("").kind


def test_results_are_compared_as_sets_or_strictly():
    rows = [("a", 2.0), ("b", 1)]
    assert equal_results(rows, [("b", 1.0000000001), ("a", 2), ("a", 2)], "set", True)
    assert not equal_results(rows, [("a", 2), ("b", 1), ("b", 1)], "strict", False)
    assert equal_results(rows, rows[::-1], "strict", False)
    assert not equal_results(rows, rows[::-1], "strict", True)
    assert not equal_results([(1, "a")], [("a", 1)], "set", False)  # columns have an order
    assert not equal_results([(None,)], [], "set", False)


def test_results_are_shown_as_tables():
    result = QueryResult(("name", "n"), (("Ada", 1), (None, 12.5)))
    assert result_text(result, 2000) == "name    n\n Ada    1\nNone 12.5"
    long = QueryResult(("n",), tuple((i,) for i in range(900)))
    text = result_text(long, 2000)
    assert text.split("\n") == ["n", *map(str, range(10)), "... 900 rows"]
    assert len(result_text(QueryResult(("x",), (("y" * 9000,),)), 2000)) <= 2000
    assert result_text(QueryResult(("n",)), 2000) == "No rows. Columns: n"


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("schema_view", ["full", "tables", "none"])
def test_the_recovering_policy_answers_in_the_tags(split: str, schema_view: str):
    """Calls are written and read again, as a renderer does."""
    options = {"split": split, "schema_view": schema_view, "difficulty": 1.0, "horizon": 6}
    env, rng, failed = make("agentrl/SqlQuestions-v0", options), np.random.default_rng(0), 0
    assert isinstance(env, SqlQuestions)
    for seed in range(8):
        _, info = env.reset(seed=seed)
        success = None
        while success is None:
            action = env.scripted_policies["recovering"](env, rng)
            if isinstance(action, Message):
                written = SQL_TOOL_FORMAT.render(action.text, action.tool_calls)
                parsed = SQL_TOOL_FORMAT.parse(written, info["tools"])
                action = Message("assistant", parsed.content, tuple(parsed.calls))
            success = env.step(action)[4].get("success")
        failed += env.failed_queries
        assert success is True
    assert failed < 8


def test_the_first_queries_of_the_recovering_policy_fail_with_probability_three_tenths():
    env = make("agentrl/SqlQuestions-v0")
    episodes = [play_scripted_episode(env, "recovering", seed) for seed in range(60)]
    assert all(episode.success for episode in episodes)
    failures = [any(turn.info["query_failed"] for turn in e.turns) for e in episodes]
    assert 8 <= sum(failures) <= 30


def test_the_opening_has_the_schema_that_was_chosen():
    full, tables = make_questions(7), make_questions(7, schema_view="tables", evidence=True)
    lines = {env.schema_view: env._opening[0].text.count("CREATE TABLE") for env in (full, tables)}
    assert lines["tables"] == len(tables.question.tables) < lines["full"]
    assert "Evidence: " in tables._opening[0].text and "Evidence" not in full._opening[0].text
    assert "CREATE" not in make_questions(7, schema_view="none")._opening[0].text


def test_the_validator_reads_the_last_thoughts_the_solution_and_its_result():
    env = make_questions(evidence=True)
    turns = []
    for text in (
        "<think>first</think><sql>SELECT 1</sql>",
        call_sql("second", "SELECT 2"),
        "<think>third</think><solution>SELECT 'a' AS word</solution>",
    ):
        action = text if isinstance(text, Message) else Message("assistant", text)
        observation, reward, terminated, _, info = env.step(action)
        turns.append(Turn((), action, observation, reward, info=info, terminated=terminated))
    trajectory = Trajectory(opening=env._opening, turns=tuple(turns))
    (message,) = validator_prompt(trajectory)
    question, evidence = env.question.text, env.question.evidence
    expected = f"{question}\n{evidence}\nsecond\nthird\nSELECT 'a' AS word\nword\n   a\n"
    assert message.text == expected
    assert solution_result(trajectory) == result_key([("a",), ("a",)])


def test_equal_sets_of_rows_have_one_key():
    assert result_key([(1, "a"), (2, None)]) == result_key([(2.0, None), (1, "a"), (1, "a")])
    assert result_key([(1,)]) != result_key([("1",)]) and result_key([]) != result_key([(None,)])


def test_a_number_of_problems_recurs():
    env = make("agentrl/SqlQuestions-v0", {"problems": 5})
    assert len({env.reset(seed=seed)[0][0].text for seed in range(40)}) == 5


@pytest.mark.parametrize(
    "option",
    [
        {"difficulty": 2}, {"split": "x"}, {"businesses": ["x"]}, {"schema_view": "x"},
        {"comparison": "x"}, {"seconds": 0}, {"steps": 1}, {"horizon": 0}, {"folder": "/nowhere"},
    ],
)  # fmt: skip
def test_options_out_of_range_are_errors_that_name_them(option):
    name = next(iter(option)).removesuffix("es")
    with pytest.raises(UserError, match=name):
        make("agentrl/SqlQuestions-v0", option)


def test_means_that_are_half_way_between_two_hundredths_are_not_asked_for():
    assert rounded(Fraction(1, 8)) is None and rounded(Fraction(1, 3)) == 0.33
    assert rounded(Fraction(1, 4)) == 0.25 and rounded(Fraction(5, 3)) == 1.67


@pytest.mark.parametrize("sql_field", ["query", "SQL"])
def test_a_folder_in_the_form_of_spider_or_bird(tmp_path: Path, sql_field: str):
    folder = write_folder(tmp_path, sql_field)
    env = make_questions(folder=str(folder), evidence=True, comparison="strict")
    texts = set()
    for seed in range(8):
        episode = play_scripted_episode(env, "expert", seed)
        assert episode.success is True
        texts.add(env.question.text)
        assert env._opening[0].text.startswith("CREATE TABLE cow (name TEXT, litres REAL);\n")
        assert "Evidence: litres a day." in env._opening[0].text
    assert texts == {"Question 0?", "Question 1?"}
    env.reset(seed=next(s for s in range(20) if _asks(env, s, "Question 1?")))
    assert env.question.is_ordered
    wrong = solution_text("x", "SELECT name FROM cow ORDER BY litres")
    assert env.step(wrong)[1] == 0.0
    assert env.database.query("DELETE FROM cow").error == "only SELECT is allowed, not DELETE"


def _asks(env: SqlQuestions, seed: int, text: str) -> bool:
    env.reset(seed=seed)
    return env.question.text == text


def test_missing_and_damaged_files_are_one_sentence(tmp_path: Path):
    def problem(**options) -> str:
        with pytest.raises(UserError) as error:
            make_questions(folder=str(tmp_path), **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "tables.json cannot be read" in problem()
    write_folder(tmp_path)
    assert "questions_file" in problem(split="schemas")
    assert "none.json cannot be read" in problem(questions_file="none.json")
    (tmp_path / "train.json").write_text("[")
    assert "dev.json, train.json" in problem()
    assert "train.json is not JSON" in problem(questions_file="train.json")
    (tmp_path / "train.json").write_text("{}")
    assert "list of objects" in problem(questions_file="train.json")
    (tmp_path / "train.json").write_text('[{"db_id": "farm", "question": "a?"}]')
    assert "entry 0: 'SQL' must be a text" in problem(questions_file="train.json")
    (tmp_path / "train.json").write_text('[{"db_id": "x", "question": "a?", "SQL": "b"}]')
    assert "tables.json has no 'x'" in problem(questions_file="train.json")
    file = tmp_path / "database" / "farm" / "farm.sqlite"
    file.write_bytes(b"not a database" * 100)
    assert "cannot be read as a SQLite database" in problem(questions_file="dev.json")
    file.unlink()
    assert "there is no database" in problem(questions_file="dev.json")

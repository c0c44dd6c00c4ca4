"""`SqlGrounding`: the tables that a question needs, as an agent names them."""

from pathlib import Path

import pytest
from support.env_episodes import play_scripted_episode
from support.sql_folder import write_folder

from agentrl_jax.environment import make
from agentrl_jax.envs.sql.questions import SPLITS
from agentrl_jax.envs.sql.sql_grounding import SqlGrounding, read_tables, tables_text
from agentrl_jax.envs.sql.sql_questions import SqlQuestions
from agentrl_jax.errors import UserError


def make_grounding(seed: int = 0, **options) -> SqlGrounding:
    env = make("agentrl/SqlGrounding-v0", options)
    assert isinstance(env, SqlGrounding)
    env.reset(seed=seed)
    return env


@pytest.mark.parametrize("split", SPLITS)
def test_the_question_is_that_of_the_same_seed(split: str):
    options = {"split": split, "difficulty": 1.0, "problems": 50}
    questions = make("agentrl/SqlQuestions-v0", options)
    assert isinstance(questions, SqlQuestions)
    for seed in range(10):
        env = make_grounding(seed, **options)
        questions.reset(seed=seed)
        assert env.question == questions.question
        assert env.needed_tables == questions.question.tables
        assert set(env.needed_tables) <= set(env.all_tables) == {*questions.table_names}


def test_rewards_by_hand():
    env = make_grounding(3, difficulty=1.0)
    needed, extra = (
        list(env.needed_tables),
        [t for t in env.all_tables if t not in env.needed_tables],
    )
    assert len(needed) > 1 and extra

    def reward(text: str) -> tuple[float, bool, list[str]]:
        env.reset(seed=3)
        _, value, terminated, truncated, info = env.step(text)
        assert terminated and not truncated and info["gold"] == needed
        return value, info["success"], info["tables"]

    assert reward(tables_text(needed[::-1])) == (1.0, True, needed[::-1])
    share = len(needed) / (len(needed) + 1)
    assert reward(tables_text([*needed, extra[0]])) == (share, False, [*needed, extra[0]])
    assert reward(tables_text([*needed, "nowhere"])) == (share, False, needed)
    assert reward(tables_text(needed[1:])) == (0.0, False, needed[1:])
    assert reward(tables_text(())) == (0.0, False, [])
    for text in ("", needed[0], f"<tables>{', '.join(needed)}</tables>", "<think>x</think>"):
        assert reward(text) == (0.0, False, [])


@pytest.mark.parametrize(
    "text,expected",
    [
        ("<think>a</think><tables>b, c ,b</tables>", ["b", "c"]),
        (" <think>a\nb</think>\n<tables>b</tables> ", ["b"]),
        ("<think></think><tables></tables>", []),
        ("<think>a</think><tables>b</tables> more", None),
        ("<think>a</think><tables>b", None),
        ("<think>a</think><tables>b</tables><tables>c</tables>", None),
        ("<think>a<think>b</think></think><tables>b</tables>", None),
        ("<think>a</think><tables><b></tables>", None),
    ],
)
def test_answers_are_read(text: str, expected: list[str] | None):
    assert read_tables(text) == expected


def test_scripted_policies():
    env = make("agentrl/SqlGrounding-v0", {"difficulty": 1.0})
    rates = {
        player: sum(bool(play_scripted_episode(env, player, s).success) for s in range(40)) / 40
        for player in ("expert", "mixture", "random")
    }
    assert rates["expert"] == 1.0 > rates["mixture"] > 0.6 and rates["random"] < 0.3


def test_the_tables_of_a_folder_are_those_that_the_reference_reads(tmp_path: Path):
    env = make_grounding(folder=str(write_folder(tmp_path)), evidence=True, instruction=False)
    assert env.needed_tables == ("cow",) == env.all_tables
    assert env._opening_text().endswith("Evidence: litres a day.")


def test_named_tables_are_shown_in_place_of_the_schema():
    env = make("agentrl/SqlQuestions-v0", {"difficulty": 1.0})
    assert isinstance(env, SqlQuestions)
    (full,), _ = env.reset(seed=5)
    names = env.table_names
    (opening,), _ = env.reset(seed=5, options={"tables": [names[1], "nowhere"]})
    assert opening.text.count("CREATE TABLE") == 1 < full.text.count("CREATE TABLE")
    assert f"CREATE TABLE {names[1]} " in opening.text and env.question.text in opening.text
    assert env.reset(seed=5, options={"tables": []})[0] == (full,)
    with pytest.raises(UserError, match="list of names"):
        env.reset(seed=5, options={"tables": "loans"})

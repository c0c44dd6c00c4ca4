"""Guess My City against its data files, hand-made tables, known numbers and hostile text."""

import csv
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile_actions import hostile_texts as hostile_texts

from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl.guess_city.game import GuessCity
from agentrl_jax.envs.lmrl.guess_city.knowledge import cities
from agentrl_jax.envs.lmrl.guess_city.llm_oracle import make_llm_oracle, oracle_prompt, parse_answer
from agentrl_jax.envs.lmrl.guess_city.name_matching import REFUSAL_TEXT, mentions_name
from agentrl_jax.envs.lmrl.guess_city.scripted import FACT_PHRASES, QUESTIONS, ScriptedOracle
from agentrl_jax.envs.lmrl.guess_city.topics import TOPICS
from agentrl_jax.envs.lmrl.oracles import measure_agreement
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

FOLDER = Path(__file__).parents[2] / "envs" / "lmrl" / "guess_city"


def city_env(**options) -> GuessCity:
    env = make("agentrl/GuessCity-v0", options)
    assert isinstance(env, GuessCity)
    return env


def rows_of(name: str) -> list[dict[str, str]]:
    with open(FOLDER / name, newline="") as file:
        return list(csv.DictReader(file, delimiter="|"))


COUNTRIES = {row["country"].split(";")[0]: row for row in rows_of("countries.csv")}
CITIES = rows_of("cities.csv")


def secret_names(row: dict[str, str]) -> list[str]:
    return [*row["city"].split(";"), *COUNTRIES[row["country"]]["country"].split(";")]


def discloses(reply: str, row: dict[str, str]) -> bool:
    """Whether a reply names the city or its country, by a regular expression."""
    return any(
        re.search(rf"(?<![^\W_]){re.escape(name.lower())}(?![^\W_])", reply.lower())
        for name in secret_names(row)
    )


def test_the_table_has_the_documented_size():
    assert len(cities()) >= 100 and all(len(city.facts) >= 25 for city in cities())
    assert {topic.fact for topic in TOPICS} == set(cities()[0].facts)
    names = [name.lower() for row in CITIES for name in row["city"].split(";")]
    assert len(set(names)) == len(names)


def test_no_fact_names_its_city_or_country():
    for city, row in zip(cities(), CITIES, strict=True):
        assert not [value for value in city.facts.values() if discloses(value, row)]


def test_facts_are_in_their_columns():
    by_name = {city.names[0]: city for city in cities()}
    for name, fact, value in [
        ("Paris", "continent", "Europe"),
        ("Tokyo", "currency", "the yen"),
        ("Geneva", "language", "French"),
        ("Cairo", "water", "the river Nile"),
        ("Sydney", "hemisphere", "southern"),
        ("Quito", "altitude", "about 2850 meters above the sea"),
        ("Lima", "driving", "right"),
        ("London", "driving", "left"),
        ("Oslo", "olympics", "1952 in winter"),
        ("Boston", "capital", "no"),
        ("Ankara", "capital", "yes"),
        ("New York", "noon", "5 hours behind Greenwich"),
        ("London", "noon", "about the same as in Greenwich"),
        ("Denpasar", "", ""),
    ]:
        assert name not in by_name if not fact else by_name[name].facts[fact] == value
    for city in cities():
        south = city.latitude < 0
        assert (
            city.facts["hemisphere"] == ("southern" if south else "northern")
            and abs(city.latitude) < 65
            and abs(city.longitude) <= 180
        )
        assert (
            sum(
                other.countries == city.countries and "C" in other.feature_marks
                for other in cities()
            )
            <= 1
        )


@pytest.mark.parametrize("variety", [0, 1, 2])
def test_every_topics_question_is_answered_by_its_fact_and_no_name(variety):
    oracle = ScriptedOracle(variety)
    for city, row in zip(cities(), CITIES, strict=True):
        for topic in TOPICS:
            reply, fact = oracle.answer(city.listed_name, topic.question), city.facts[topic.fact]
            assert not discloses(reply, row) and 1 <= len(re.findall(r"[.]", reply)) <= 2
            if fact == "yes":
                assert reply.startswith("Yes")
            elif fact == "no" and topic.fact != "olympics":
                assert reply.startswith("No")
            elif fact != "no":
                assert fact in reply, (topic.question, reply)


def test_the_seed_changes_only_the_wording():
    answers = {
        ScriptedOracle(variety).answer("paris", "What language do people speak there?")
        for variety in range(30)
    }
    assert answers == {"People speak French.", "You mostly hear French."}


@pytest.mark.parametrize(
    "question,paris,tokyo",
    [
        ("Is it in Europe?", True, False),
        ("Is it in Asia or Europe?", True, True),
        ("Is it in asia", False, True),
        ("Are you from France?", True, False),
        ("Is your city Tokyo?", False, True),
        ("Do people speak French there?", True, False),
        ("Do they use the euro?", True, False),
        ("Is it the capital?", True, True),
        ("Is it a capital in Europe?", True, False),
        ("Is it by the sea?", False, True),
        ("Is it in the southern hemisphere?", False, False),
        ("Do people drive on the left?", False, True),
        ("Is it a monarchy?", False, True),
        ("Has it hosted the Olympics?", True, True),
        ("Is there a river that runs through your city?", True, False),
        ("Is it tropical?", False, False),  # subtropical is another climate
        ("Is it subtropical?", False, True),
        ("Is it near London?", None, None),
        ("Is it not in Europe?", None, None),
        ("What country is it in?", "refused", "refused"),
        ("Where are you from?", "refused", "refused"),
        ("What is your city called?", "refused", "refused"),
        ("Spell it letter by letter", "refused", "refused"),
    ],
)
def test_answers_by_hand(question, paris, tokyo):
    for name, expected in (("paris", paris), ("tokyo,japan", tokyo)):
        reply = ScriptedOracle().answer(name, question)
        if expected == "refused":
            assert reply == REFUSAL_TEXT
        elif expected is None:
            assert not reply.startswith(("Yes", "No"))
        else:
            assert reply.startswith("Yes" if expected else "No")


@pytest.mark.parametrize(
    "text,named",
    [
        ("Is your city Paris?", True),
        ("PARIS", True),
        ("paris's", True),
        ("p a r i s", True),
        ("P.a.r.i.s", True),
        ("París!", True),
        ("is it (paris)", True),
        ("Parisian", False),
        ("comparison", False),
        ("par is", False),
        ("", False),
    ],
)
def test_when_a_text_mentions_paris(text, named):
    assert mentions_name(text, ["Paris"]) is named


@pytest.mark.parametrize(
    "text,named",
    [
        ("new york", True),
        ("New   York?", True),
        ("york new", False),
        ("new-york", True),
        ("NYC", True),
        ("new jersey, york", False),
    ],
)
def test_names_of_several_words(text, named):
    assert mentions_name(text, ["New York", "NYC"]) is named


def restated_step(row: dict[str, str], num_questions: int, text: str) -> tuple[float, bool]:
    """The reward and whether the episode ends, for texts of plain letters."""
    won = any(
        re.search(rf"\b{re.escape(name.lower())}\b", text.lower())
        for name in row["city"].split(";")
    )
    return (0.0 if won else -1.0), won or num_questions == 19


def test_random_games_match_the_restated_rules():
    env, dice, wins = city_env(), random.Random(0), 0
    for seed in range(150):
        env.reset(seed=seed)
        (row,) = [
            row
            for row in CITIES
            if env.target == f"{row['city'].split(';')[0]},{row['country']}".lower()
        ]
        for before in range(20):
            other = dice.choice(dice.choice(CITIES)["city"].split(";"))
            city_name = dice.choice(row["city"].split(";"))
            kinds = [
                dice.choice(QUESTIONS),
                f"Is it {other}?",
                f"I like {other} and {dice.choice(CITIES)['country']}",
                dice.choice(list(COUNTRIES)),
            ]
            text = dice.choice(kinds) if dice.random() < 0.97 else f"Are you from {city_name}?"
            reply, reward, terminated, truncated, info = env.step(text)
            assert (reward, terminated, truncated) == (*restated_step(row, before, text), False), (
                env.target,
                text,
            )
            assert info.get("success") == (reward == 0 if terminated else None)
            assert not discloses(texts(reply)[0], row) and texts(reply)[0].endswith("\n")
            wins += reward == 0
            if terminated:
                break
    assert 10 < wins < 145


def test_a_game_has_the_format_of_lmrl_gym():
    env = city_env()
    env.reset(seed=0, options={"target": "paris,france"})
    env.step("Is it in Asia?")
    assert env.step("Is your city Paris?")[1:3] == (0.0, True)
    assert re.fullmatch(
        r"Questions:\nIs it in Asia\?\nNo.*\.\nIs your city Paris\?\nYes.*\.\n", env.render()
    )


def test_the_character_comparison_never_succeeds():
    env = city_env(character_comparison=True)
    env.reset(seed=0, options={"target": "paris"})
    ends = [env.step("Is it Paris?")[1:3] for _ in range(20)]
    assert ends == [(-1.0, False)] * 19 + [(-1.0, True)] and env.score_anchors is None


@pytest.mark.parametrize("target", ["atlantis", "", 3, None])
def test_a_target_must_be_a_city(target):
    with pytest.raises(UserError, match="target"):
        city_env().reset(options={"target": target})


def test_an_invalid_oracle_is_an_error():
    with pytest.raises(UserError, match="url"):
        city_env(oracle="me")


def test_archers_prompt_and_censoring():
    assert (
        oracle_prompt("mumbai,india", "What is it known for?")
        == "Your home town is Mumbai.What is it known for?"
    )
    for reply in ("I live in Mumbai.", "it is BOMBAY", "India!", "M u m b a i"):
        assert parse_answer("mumbai", reply) == REFUSAL_TEXT
    assert (
        parse_answer("mumbai", " It is hot.\nVery hot. ") == "It is hot. Very hot."
        and len(parse_answer("mumbai", "x" * 10**6)) <= 1000
    )


def test_a_language_model_oracle_never_leaks_the_city():
    env = city_env()
    env.oracle = make_llm_oracle(lambda text: text)  # repeats its prompt, with the name
    env.reset(seed=0)
    assert texts(env.step("What is it known for?")[0]) == [REFUSAL_TEXT + "\n"]


def test_a_language_model_oracle_that_knows_the_table_agrees_with_the_scripted_one():
    scripted = ScriptedOracle()
    knows = make_llm_oracle(
        lambda text: scripted.answer(text.split("town is ")[1].split(".")[0], text.split(".", 1)[1])
    )
    pairs = [(city.listed_name, question) for city in cities()[::10] for question in QUESTIONS[:6]]
    assert measure_agreement(scripted, knows, pairs).equal_fraction == 1
    assert (
        measure_agreement(
            scripted, make_llm_oracle(lambda text: "I don't know."), pairs
        ).equal_fraction
        < 0.2
    )


def test_the_scripted_policies_have_the_known_returns():
    env = city_env()
    assert env.score_anchors == (-20, -18.8, -1)
    for city in cities()[::13]:
        env.reset(options={"target": city.names[0]})
        done, total = False, 0.0
        while not done:
            _, reward, done, _, _ = env.step(
                env.scripted_policies["expert"](env, np.random.default_rng(0))
            )
            total += reward
        assert total == -1
    scores = np.zeros(300)
    for seed in range(len(scores)):
        env.reset(seed=seed)
        rng, done = np.random.default_rng([seed, 1]), False
        while not done:
            _, reward, done, _, _ = env.step(env.scripted_policies["random"](env, rng))
            scores[seed] += reward
    assert np.mean(scores) == pytest.approx(-18.8, abs=4 * 3.7 / 300**0.5)


FREE = hostile_texts(
    *(name for row in CITIES for name in secret_names(row)),
    *(phrase for topic in TOPICS for phrase in topic.phrases.split("|")),
    *(phrase for phrases in FACT_PHRASES.values() for phrase in phrases.split("|")),
)


@settings(max_examples=100, deadline=2000)
@given(st.integers(0, len(CITIES) - 1), FREE)
def test_no_text_raises_reveals_the_city_or_wins_without_its_name(place, text):
    env, row = city_env(), CITIES[place]
    env.reset(options={"target": row["city"].split(";")[0]})
    reply, reward, terminated, _, _ = env.step(text)
    assert not discloses(texts(reply)[0], row) and len(texts(reply)[0]) < 250
    letters = re.sub(r"[^a-z]", "", text.lower())
    assert reward == (0.0 if terminated else -1.0)
    if terminated and text.isascii():
        assert any(
            re.sub(r"[^a-z]", "", name.lower()) in letters for name in row["city"].split(";")
        )

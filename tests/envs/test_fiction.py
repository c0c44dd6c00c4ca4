"""The harbour case against its restated rules; points, ends and texts by hand."""

import random
import re

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.context import LastMessages
from agentrl_jax.environment import make
from agentrl_jax.envs.fiction import story
from agentrl_jax.envs.fiction.harbour import HarbourCase
from agentrl_jax.envs.fiction.rules import StoryState, command_outcomes, next_step
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

CASES = range(9)


def harbour(**options) -> HarbourCase:
    env = make("agentrl/HarbourCase-v0", options)
    assert isinstance(env, HarbourCase)
    return env


# The restated rules: a list of exits, and a set of facts.
WALKS = """office s street, street e square, street w pier, street s alley, square n town hall,
square s inn, square e clock shop, town hall u archive, clock shop e workshop, workshop d cellar,
cellar e tunnel, tunnel e cave, cave n beach, beach w pier, pier n ferry,
inn u room nine, inn e kitchen, alley s yard, yard e warehouse, beach e !, pier w !"""
LETTERS = {"n": "north", "s": "south", "e": "east", "w": "west", "u": "up", "d": "down"}
BACK = dict(zip("nsewud", "snwedu"))
WORTH = {
    "badge": 10,
    "ledger": 20,
    "light": 10,
    "watch": 20,
    "glove": 20,
    "letter": 30,
    "key": 10,
    "dog": 20,
    "clock": 40,
    "arrest": 100,
}
LIES = {
    "badge": "office",
    "lamp": "clock shop",
    "watch": "workshop",
    "glove": "cellar",
    "bone": "kitchen",
}
LIVES = {"ferryman": "ferry", "innkeeper": "inn", "clerk": "town hall"}


def paths() -> dict[tuple[str, str], str]:
    exits = {}
    for walk in re.split(r",\s", WALKS):
        origin, letter, destination = re.fullmatch(r"(.+) ([nsewud]) (.+)", walk).groups()  # pyright: ignore[reportOptionalMemberAccess]
        exits[origin, LETTERS[letter]] = destination
        if destination not in ("!", "pier") or origin == "street":
            exits[destination, LETTERS[BACK[letter]]] = origin
    return {pair: destination for pair, destination in exits.items() if pair[0] != "!"}


class RestatedCase:
    def __init__(self, case: int, horizon: int):
        self.paths, self.room, self.facts, self.left = paths(), "office", set(), horizon
        self.lies = LIES | {"key": ("room nine", "archive", "beach")[case // 3]}
        self.guilty = ("ferryman", "innkeeper", "clerk")[case % 3]

    def possible(self) -> list[str]:
        at, facts = self.room, self.facts
        commands = [direction for room, direction in self.paths if room == at]
        commands += [
            f"take {thing}"
            for thing, room in self.lies.items()
            if room == at and thing not in facts
        ]
        commands += [f"arrest {who}" for who, room in LIVES.items() if room == at]
        conditions = {
            "read ledger": at == "archive" and "ledger" not in facts,
            "read letter": at == "cave" and "letter" not in facts,
            "light lamp": "lamp" in facts and "light" not in facts,
            "give bone to dog": at == "yard" and "bone" in facts and "dog" not in facts,
            "unlock door": at == "yard" and {"key", "dog"} <= facts and "door" not in facts,
            "examine clock": at == "warehouse" and "clock" not in facts,
            "drink wine": at == "kitchen",
        }
        return sorted(commands + [command for command, can in conditions.items() if can])

    def do(self, command: str | None):
        """(points, terminated, truncated)"""
        before, over = self.worth(), False
        self.left -= 1
        verb, *arguments = command.split() if command else [""]
        if verb == "arrest":
            over = True
            if arguments == [self.guilty] and {"badge", "ledger", "letter", "clock"} <= self.facts:
                self.facts.add("arrest")
        elif verb == "drink":
            over = True
        elif verb in LETTERS.values():
            destination = self.paths[self.room, verb]
            over = destination == "!" or (
                destination == "cellar" and self.room == "workshop" and "light" not in self.facts
            )
            over = over or (destination == "warehouse" and "dog" not in self.facts)
            if not over and (destination != "warehouse" or "door" in self.facts):
                self.room = destination
        elif verb:
            self.facts.add(
                {"light": "light", "give": "dog", "unlock": "door"}.get(
                    verb, arguments[-1] if arguments else ""
                )
            )
        return self.worth() - before, over, not over and self.left == 0

    def worth(self) -> int:
        return sum(WORTH.get(fact, 0) for fact in self.facts)


def test_thousands_of_steps_match_the_restated_rules():
    env, dice, ends, scores = harbour(), random.Random(0), set(), set()
    for game in range(90):
        case = game % 9
        (message,), _ = env.reset(seed=game, options={"case": case})
        twin, done = RestatedCase(case, 50), False
        while not done:
            possible = twin.possible()
            assert message.text.endswith(f"\n{possible}\n") and message.text.lower().startswith(
                twin.room + ". "
            )
            command = next_step(env.state) if dice.random() < game / 90 else dice.choice(possible)
            wrong = [
                command.upper(),
                command + "!",
                "",
                "go " + command,
                "take moon",
                "arrest me",
                command + " " + command,
                "\x00",
            ]
            odd = dice.random() < 0.1
            (message,), reward, terminated, truncated, info = env.step(
                dice.choice(wrong) if odd else dice.choice([command, f" {command}\n"])
            )
            assert (reward, terminated, truncated) == twin.do(None if odd else command)
            assert info["legal"] is not odd and info["score"] == twin.worth()
            done = terminated or truncated
        assert info["success"] is ("arrest" in twin.facts)
        ends.add((terminated, info["success"]))
        scores.add(info["score"])
    assert (
        ends == {(True, True), (True, False), (False, False)} and 280 in scores and len(scores) > 10
    )


@pytest.mark.parametrize("case", CASES)
def test_the_expert_earns_all_points_within_the_horizon(case):
    env = harbour(case=case)
    game = play_scripted_episode(env, "expert", seed=0)
    assert (
        game.total_reward == sum(story.COMMAND_POINTS.values()) == sum(WORTH.values()) == 280
        and game.success
        and len(game.turns) <= 43
    )


def test_the_expert_solves_every_case_from_any_reached_state():
    dice = random.Random(1)
    for game in range(45):
        state = StoryState(game % 9)
        for _ in range(dice.randrange(150)):
            state = dice.choice(
                [o.state for o in command_outcomes(state).values() if not o.state.is_over]
            )
        for _ in range(80):
            state = command_outcomes(state)[next_step(state)].state
            if state.is_over:
                break
        assert state.is_solved and state.score == 280


def test_exits_match_the_restated_map():
    assert {
        (room, way): "!" if there not in story.ROOMS else there
        for room, r in story.ROOMS.items()
        for way, there in r.exits.items()
    } == paths()
    assert (
        len(story.ROOMS) == 19
        and {*story.ITEM_ROOMS.values(), *story.KEY_ROOMS, *story.SUSPECT_ROOMS.values()}
        <= story.ROOMS.keys()
    )


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ("south, west, west", "Nobody|nobody hears you"),
        ("south, east, east, east, down", "a step that is not there"),
        ("south, south, south, east", "The dog is faster"),
        ("south, east, south, east, drink wine", "not for you"),
        ("south, east, south, arrest innkeeper", "draws first"),
        ("take badge, south, east, south, arrest innkeeper", "letter of dismissal"),
        ("take badge, south, west, north, arrest ferryman", "letter of dismissal"),
    ],
)
def test_fatal_commands_end_the_episode(commands, expected):
    env = harbour(case=1)  # the innkeeper did it
    env.reset(seed=0)
    *before, last = [env.step(command) for command in commands.split(", ")]
    assert not any(terminated for _, _, terminated, *_ in before)
    messages, reward, terminated, truncated, info = last
    assert (reward, terminated, truncated, info["success"], info["legal"]) == (
        0.0,
        True,
        False,
        False,
        True,
    )
    assert re.search(expected, texts(messages)[0]) and texts(messages)[0].endswith("\n[]\n")


def test_the_lamp_and_the_bone_make_fatal_moves_safe():
    env = harbour(case=0)
    env.reset(seed=0)
    for command in ("south", "east", "east", "take lamp", "light lamp", "east"):
        env.step(command)
    assert env.fork().step("down")[2] is False
    env.reset(seed=0)
    for command in (
        "south",
        "east",
        "south",
        "east",
        "take bone",
        "west",
        "north",
        "west",
        "south",
        "south",
    ):
        env.step(command)
    assert env.fork().step("east")[2] is True
    assert (
        env.step("give bone to dog")[1] == 20
        and "bone" not in texts(env.step("east")[0])[0].split("You carry")[1]
    )
    assert env.state.room == "yard" and not env._is_over  # the door is locked


def test_an_observation_has_room_inventory_feedback_and_commands():
    env = harbour(case=8)
    opening, _ = env.reset(seed=0)
    assert texts(opening)[0].splitlines() == [
        "Office. Rain runs down the only window of the harbour police. Your desk is bare. There "
        "is a badge here.",
        "You carry: nothing.",
        "You are on duty, and it is a case for you.",
        "['south', 'take badge']",
    ]
    assert texts(env.step("take badge")[0])[0].splitlines() == [
        "Office. Rain runs down the only window of the harbour police. Your desk is bare.",
        "You carry: badge.",
        "You take the badge.",
        "['south']",
    ]
    lines = texts(env.step("sing")[0])[0].splitlines()
    assert lines[2:] == ["Nothing comes of that.", "['south']"]
    assert env.context == LastMessages(1)


@pytest.mark.parametrize("case", CASES)
def test_only_the_letter_names_the_culprit(case):
    env, letter_read = harbour(case=case), False
    env.reset(seed=0)
    while not env.state.is_over:
        command = next_step(env.state)
        (message,), *_ = env.step(command)
        letter_read = letter_read or command == "read letter"
        notes = message.text.splitlines()[1]
        assert (f"written by the {env.state.culprit}" in notes) is letter_read
        assert sum(suspect in notes for suspect in story.SUSPECT_ROOMS) == letter_read


def test_seeds_sample_every_case_and_an_option_fixes_one():
    env, fixed = harbour(), harbour(case=4)
    cases = set()
    for seed in range(100):
        env.reset(seed=seed)
        fixed.reset(seed=seed)
        cases.add(env.state.case)
        assert fixed.state.case == 4
    assert cases == set(CASES)
    fixed.reset(seed=0, options={"case": 2})
    assert fixed.state.case == 2


def test_the_random_policy_earns_few_points():
    assert (
        np.mean(
            [play_scripted_episode(harbour(), "random", seed).total_reward for seed in range(200)]
        )
        < 30
    )


@pytest.mark.parametrize(
    "options", [{"horizon": 0}, {"case": 9}, {"case": -1}, {"case": True}, {"case": "x"}]
)
def test_an_invalid_option_is_an_error(options):
    with pytest.raises(UserError, match=next(iter(options))):
        harbour(**options)


@pytest.mark.parametrize("case", [9, None, "1"])
def test_an_invalid_reset_option_is_an_error(case):
    with pytest.raises(UserError, match="case must be a whole number from 0 to 8"):
        harbour().reset(options={"case": case})

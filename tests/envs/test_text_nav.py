"""Text-Nav against its restated rules, a search over plans, and known texts."""

import random
import re
from collections import deque

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl.house import (
    CONTAINERS,
    HAND,
    INITIAL_LOCATIONS,
    ROOMS,
    HouseState,
    command_results,
    exits,
    next_step,
    shortest_route,
)
from agentrl_jax.envs.lmrl.text_nav import HORIZON, DataPolicy, TextNav
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

VIEWS = ("full", "partial")


def text_nav(**options) -> TextNav:
    env = make("agentrl/TextNav-v0", options)
    assert isinstance(env, TextNav)
    return env


# The restated rules: rooms on a grid, a dictionary of holders, and one test per command.
GRID = {
    (0, 0): "kitchen",
    (1, 0): "dining room",
    (2, 0): "living room",
    (3, 0): "bedroom",
    (0, 1): "garden",
    (-1, 0): "backyard",
}
GRID |= {(2, -1): "office", (3, -1): "bathroom"}
COMPASS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
NOT_JOINED = {frozenset({"dining room", "garden"})}  # all other adjacent cells are connected
SHELF = {
    "kitchen": "fridge",
    "dining room": "table",
    "living room": "table",
    "bedroom": "table",
    "office": "chest",
}
FOOD = ("stale food", "fresh food", "fruit")


class RestatedHouse:
    def __init__(self, room: str):
        self.cell = next(cell for cell, name in GRID.items() if name == room)
        self.where = {
            "stale food": "living room+",
            "fresh food": "living room+",
            "bowl": "bedroom+",
            "coffee cup": "dining room+",
        }
        self.where |= {"plate": "dining room+", "utensils": "office+", "fruit": "kitchen+"}
        self.shut, self.count = {"office", "kitchen"}, 0

    @property
    def room(self) -> str:
        return GRID[self.cell]

    def neighbour(self, way: str):
        cell = (self.cell[0] + COMPASS[way][0], self.cell[1] + COMPASS[way][1])
        return (
            cell if cell in GRID and frozenset({self.room, GRID[cell]}) not in NOT_JOINED else None
        )

    def can(self, command: str) -> bool:
        verb, *words = command.split()
        argument, shelf = " ".join(words), SHELF.get(self.room)
        thing, _, holder = re.sub(" (from|on|into) ", "|", argument).partition("|")
        reachable = shelf is not None and self.room not in self.shut
        if verb == "go":
            return self.neighbour(argument) is not None
        if verb == "open":
            return argument == shelf and self.room in self.shut
        if verb == "close":
            return argument == shelf and shelf != "table" and self.room not in self.shut
        if verb == "take":
            spot = self.room + "+" if holder else self.room
            return self.where[thing] == spot and (not holder or (holder == shelf and reachable))
        if verb in ("put", "insert"):
            return (
                holder == shelf
                and reachable
                and self.where[thing] == "me"
                and (verb == "put") == (shelf == "table")
            )
        return self.where[thing] == "me" and (verb == "drop" or thing in FOOD)

    def listed(self) -> list[str]:
        every = [f"go {way}" for way in COMPASS] + [
            f"{verb} {holder}" for verb in ("open", "close") for holder in ("chest", "fridge")
        ]
        for thing in self.where:
            every += [f"{verb} {thing}" for verb in ("take", "drop", "eat")]
            every += [
                f"{how.format(thing)} {holder}"
                for how in ("take {} from", "put {} on", "insert {} into")
                for holder in FURNITURE
            ]
        return sorted(filter(self.can, every))

    def do(self, command: str | None):
        """(reward, terminated, truncated)"""
        self.count += 1
        if command is not None:
            verb, _, argument = command.partition(" ")
            thing = re.split(" (?:from|on|into) ", argument)[0]
            if verb == "go":
                cell = self.neighbour(argument)
                assert cell is not None
                self.cell = cell
            elif verb in ("open", "close"):
                self.shut ^= {self.room}
            else:
                self.where[thing] = {"take": "me", "drop": self.room, "eat": "gone"}.get(
                    verb, self.room + "+"
                )
        won = self.where["stale food"] == "kitchen+" and "kitchen" in self.shut
        over = won or self.where["stale food"] == "gone"
        return (1.0 if won else 0.0), over, not over and self.count == 15


FURNITURE = ("table", "chest", "fridge")


def any_text(dice: random.Random, listed: list[str]) -> tuple[str, str | None]:
    """A text and the listed command that it means, if any."""
    command = dice.choice(
        [c for c in listed if not c.startswith(("eat stale", "close fridge"))] or listed
    )
    if dice.random() < 0.05:
        command = dice.choice(listed)
    the = re.sub(r"^(\w+) ", r"\1 the ", command) if not command.startswith("go") else command
    same = [
        command,
        command,
        command + "\n",
        f"  {command.upper()} ",
        the,
        command.replace(" ", "  "),
    ]
    if command.startswith("take"):
        same += [
            command.replace("take", "get"),
            command.replace("take", "pick up"),
            command.split(" from ")[0],
        ]
    if command.startswith("go"):
        same += [command[3:], command[3]]
    if command.startswith("insert"):
        same += [command.replace("insert", "put"), command.replace(" into ", " in ")]
    wrong = [
        "",
        "go up",
        "take moon",
        "eat table",
        command + ".",
        "take",
        command + " " + command,
        "go",
        "open living room",
        "\x00",
        "é" * 9,
    ]
    wrong += [
        command + " " * 50 + "x" * 60,
        "put stale food",
        "insert stale food",
        "drop all",
        "take table",
        "open table",
        "close garden",
    ]
    return (dice.choice(wrong), None) if dice.random() < 0.25 else (dice.choice(same), command)


@pytest.mark.parametrize("view", VIEWS)
def test_thousands_of_steps_match_the_restated_rules(view):
    env, dice, ends = text_nav(view=view), random.Random(view), set()
    for _ in range(80):
        room = dice.choice(ROOMS)
        (message,), _ = env.reset(seed=dice.randrange(10**6), options={"room": room})
        twin, done = RestatedHouse(room), False
        while not done:
            listed = twin.listed()
            assert message.text.endswith(f"\nAdmissible commands: {', '.join(listed)}\n")
            if dice.random() < 0.5:
                listed = [next_step(env.state)]
            text, meant = any_text(dice, listed)
            (message,), reward, terminated, truncated, info = env.step(text)
            assert (reward, terminated, truncated) == twin.do(meant)
            assert info["legal"] is (meant is not None)
            done = terminated or truncated
        assert info["success"] is (reward == 1)
        ends.add((terminated, reward))
    assert ends == {(True, 1.0), (True, 0.0), (False, 0.0)}


@pytest.mark.parametrize("room", ROOMS)
def test_the_experts_solutions_are_shortest(room):
    """Only the stale food matters, so that the search ignores all other items."""

    def key(house: RestatedHouse):
        return house.cell, house.where["stale food"], "kitchen" in house.shut

    def useful(house: RestatedHouse):
        return [
            c
            for c in house.listed()
            if c.startswith(("go", "open fridge", "close fridge"))
            or ("stale" in c and "eat" not in c)
        ]

    start = RestatedHouse(room)
    frontier, visited, shortest = deque([(start, 0)]), {key(start)}, None
    while shortest is None:
        house, depth = frontier.popleft()
        for command in useful(house):
            child = RestatedHouse(room)
            child.cell, child.where, child.shut = house.cell, dict(house.where), set(house.shut)
            if child.do(command)[0] == 1:
                shortest = depth + 1
                break
            if key(child) not in visited:
                visited.add(key(child))
                frontier.append((child, depth + 1))
    assert shortest is not None and shortest <= HORIZON
    state, taken = HouseState(room), 0
    while not state.is_won:
        state, taken = command_results(state)[next_step(state)], taken + 1
    assert taken == shortest
    assert room != "office" or shortest == 7


def test_the_expert_wins_from_any_reached_state():
    dice = random.Random(5)
    for _ in range(100):
        state = HouseState(dice.choice(ROOMS))
        for _ in range(dice.randrange(60)):
            state = dice.choice(
                [s for s in command_results(state).values() if not (s.is_won or s.is_lost)]
            )
        for _ in range(25):
            state = command_results(state)[next_step(state)]
            if state.is_won:
                break
        assert state.is_won


def test_the_map_is_the_published_one():
    assert {room: dict(exits(room)) for room in ROOMS} == {
        "bedroom": {"south": "bathroom", "west": "living room"},
        "bathroom": {"north": "bedroom", "west": "office"},
        "office": {"east": "bathroom", "north": "living room"},
        "living room": {"east": "bedroom", "south": "office", "west": "dining room"},
        "dining room": {"east": "living room", "west": "kitchen"},
        "kitchen": {"east": "dining room", "north": "garden", "west": "backyard"},
        "garden": {"south": "kitchen"},
        "backyard": {"east": "kitchen"},
    }
    assert (
        shortest_route("office", "kitchen") == ("north", "west", "west")
        and shortest_route("garden", "garden") == ()
    )
    assert {h.location: HouseState("office").items_at(h.location) for h in CONTAINERS} == {
        "bedroom table": ("bowl",),
        "living room table": ("stale food", "fresh food"),
        "dining room table": ("coffee cup", "plate"),
        "office chest": ("utensils",),
        "kitchen fridge": ("fruit",),
    }


def test_the_shortest_game_from_the_office():
    env = text_nav()
    env.reset(options={"room": "office"})
    plan = [
        "go north",
        "take stale food from table",
        "go west",
        "go west",
        "open fridge",
        "insert stale food into fridge",
        "close fridge",
    ]
    results = [env.step(command)[1:] for command in plan]
    assert [r[0] for r in results] == [0, 0, 0, 0, 0, 0, 1] and results[-1][1:] == (
        True,
        False,
        {"rewards": {"task": 1.0}, "legal": True, "success": True},
    )


def test_only_eating_the_stale_food_ends_the_episode():
    env = text_nav()
    env.reset(options={"room": "living room"})
    env.step("take fresh food from table")
    assert env.step("eat fresh food")[1:3] == (0.0, False) and "eat fresh food" not in env.actions()
    env.step("take stale food from table")
    *_, reward, terminated, truncated, info = env.step("eat stale food")
    assert (reward, terminated, truncated, info["success"]) == (0.0, True, False, False)


def test_an_episode_has_fifteen_commands():
    env = text_nav()
    env.reset(options={"room": "garden"})
    ends = [env.step("look")[2:4] for _ in range(15)]
    assert ends == [(False, False)] * 14 + [(False, True)]


def paragraphs(messages) -> list[str]:
    (text,) = texts(messages)
    assert text.endswith("\n") and "\n\n\n" not in text.lstrip("\n")
    return text.removesuffix("\n").split("\n\n")


@pytest.mark.parametrize("sentences", range(8))
def test_only_the_full_view_states_room_and_inventory(sentences):
    full, partial = text_nav(sentences=sentences), text_nav(view="partial", sentences=sentences)
    for room in ROOMS:
        openings = [paragraphs(env.reset(options={"room": room})[0]) for env in (full, partial)]
        assert [len(o) for o in openings] == [3, 3]
        assert room in openings[0][0].lower() and not re.search(
            rf"\b({'|'.join(ROOMS)})\b", " ".join(openings[1]).lower()
        )
        assert openings[0][0].endswith(openings[1][0]) and openings[0][1:] == openings[1][1:]
        assert openings[1][0] == "" or openings[1][0].startswith(" ")
        ways = sorted(exits(room))
        assert re.findall("north|south|east|west", openings[1][1]) == ways
        full_text, hidden = paragraphs(full.step("look")[0]), paragraphs(partial.step("look")[0])
        assert (
            full_text == [*openings[0][:2], "You are carrying nothing.", openings[0][2]]
            and hidden == openings[1]
        )


def test_descriptions_match_the_state():
    env, dice = text_nav(), random.Random(2)
    for seed in range(40):
        env.reset(seed=seed)
        for _ in range(14):
            command = dice.choice([c for c in env.actions() if "stale" not in c])
            env.step(command)
            state = env.state
            first, _, load, listed = paragraphs(env.fork().step("look")[0])
            holder = next((h for h in CONTAINERS if h.room == state.room), None)
            open_ = holder is not None and (not holder.can_open or state.room in state.open_rooms)
            room_commands = {
                *state.items_at(state.room),
                *(state.items_at(holder.location) if holder is not None and open_ else ()),
            }
            assert {thing for thing in INITIAL_LOCATIONS if thing in first} == room_commands
            assert {thing for thing in INITIAL_LOCATIONS if thing in load} == set(
                state.items_at(HAND)
            )
            assert (
                holder is None
                or not holder.can_open
                or f"{'an open' if open_ else 'a closed'} {holder.name}" in first
            )
            assert {
                thing for thing in INITIAL_LOCATIONS if f"take {thing}" in listed
            } == room_commands


def test_answers_by_hand():
    env = text_nav(view="partial")
    env.reset(options={"room": "office"})
    replies = {
        c: paragraphs(env.step(c)[0])[0]
        for c in (
            "open chest",
            "take utensils from chest",
            "examine utensils",
            "inventory",
            "drop utensils",
        )
    }
    assert list(replies.values()) == [
        "You open the chest and find an utensils.",
        "You take the utensils from the chest.",
        "The utensils looks as one would expect.",
        "You are carrying: an utensils.",
        "You drop the utensils on the floor.",
    ]
    assert [
        paragraphs(env.step(c)[0])[0]
        for c in (
            "close chest",
            "open chest",
            "i",
            "take utensils",
            "insert utensils into chest",
            "sing",
        )
    ] == [
        "You close the chest.",
        "You open the chest, which is empty.",
        "You are carrying nothing.",
        "You take the utensils.",
        "You put the utensils into the chest.",
        "That is not possible here.",
    ]


def test_the_seed_of_sentences_changes_only_the_wording():
    default, second = text_nav(), text_nav(sentences=7)
    games = [play_scripted_episode(env, "mixture", seed=3) for env in (default, second)]
    assert [t.action for t in games[0].turns] == [t.action for t in games[1].turns]
    assert games[0].opening != games[1].opening


@pytest.mark.slow
def test_the_data_policy_has_the_published_mean_and_length():
    """0.258 and 12.2; the released script, with expert probability 0.1, wins almost nothing."""
    games = [play_scripted_episode(text_nav(), "mixture", seed) for seed in range(1000)]
    wins, lengths = [g.total_reward for g in games], [len(g.turns) for g in games]
    assert abs(np.mean(wins) - 0.258) < 3 * np.sqrt(2 * 0.258 * 0.742 / 1000)
    assert abs(np.mean(lengths) - 12.2) < 0.5
    assert (
        np.mean(
            [
                play_scripted_episode(text_nav(), "released", seed).total_reward
                for seed in range(300)
            ]
        )
        < 0.01
    )


def test_the_data_policy_knows_half_of_the_rooms():
    env, far, near = text_nav(), DataPolicy(far_probability=1.0), DataPolicy(far_probability=0.0)
    for room in ROOMS:
        env.reset(seed=0, options={"room": room})
        rng = np.random.default_rng(0)
        knows = {
            name: len({w(env, rng) for _ in range(60)}) == 1
            for name, w in (("far", far), ("near", near))
        }
        single = len(env.actions()) == 1
        assert knows == {
            "far": single or room in ("office", "bathroom", "garden", "backyard"),
            "near": single or (room in SHELF and room != "office"),
        }


def test_every_room_is_a_start_room():
    env = text_nav()
    starts = []
    for seed in range(400):
        env.reset(seed=seed)
        starts.append(env.start_room)
    assert {room: starts.count(room) > 25 for room in ROOMS} == dict.fromkeys(ROOMS, True)


@pytest.mark.parametrize(
    "options",
    [{"view": "walls"}, {"view": 3}, {"sentences": -1}, {"sentences": True}, {"sentences": "x"}],
)
def test_an_invalid_option_is_an_error(options):
    with pytest.raises(UserError, match=next(iter(options))):
        text_nav(**options)


@pytest.mark.parametrize("room", ["attic", "", None, 3, ["kitchen"]])
def test_a_start_must_be_a_room(room):
    with pytest.raises(UserError, match="room must be one of bedroom"):
        text_nav().reset(options={"room": room})

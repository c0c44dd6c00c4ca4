"""The maze against hand-worked tables, its restated rules, and known numbers."""

import random
from dataclasses import replace

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl import maze
from agentrl_jax.envs.lmrl.maze import DATA_POLICY, FREE_CELLS, GOAL, MOVES, Maze, shortest_moves
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant, texts
from agentrl_jax.trajectories import Turn

STARTS = [cell for cell in FREE_CELLS if cell != GOAL]
LEGAL = ["move left", "move right", "move up", "move down"]


def maze_env(name: str = "MazeFO", **options) -> Maze:
    env = make(f"agentrl/{name}-v0", options)
    assert isinstance(env, Maze)
    return env


# The restated rules, on the complex plane: column + row * 1j.
FLOOR = {c + 1j for c in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)} | {
    c + 1j * r for c in (3, 9) for r in (2, 3, 4)
}
FLOOR |= {c + 5j for c in range(3, 10)} | {6 + 1j * r for r in (6, 7, 8)}
TURNS = dict(zip(LEGAL, (-1, 1, -1j, 1j)))
PAY = {
    "standard": (0, -4, -1),
    "illegal_penalty": (1, -1, 0),
    "illegal_penalty_diff_scale": (1, -100, -1),
}


def spell(z: complex) -> str:
    return f"{' '.join(str(int(z.imag)))}, {' '.join(str(int(z.real)))}"


def restated_text(z: complex, goal: complex, view: str) -> str:
    near = [
        where
        for step, where in (
            (1, "to your right"),
            (-1, "to your left"),
            (-1j, "above you"),
            (1j, "below you"),
        )
        if z + step not in FLOOR
    ]
    walls = ["There are no walls near you.", "There is a wall {}.", "There are walls {}."][
        min(len(near), 2)
    ].format(", ".join(near))
    where = {"walls": "", "goal": f"The goal is at position {spell(goal)}. "}
    where["position"] = where["goal"] + f"Your current position is at position {spell(z)}. "
    return where[view] + walls + "\n"


class RestatedMaze:
    def __init__(self, start, goal, view: str, reward: str):
        self.at, self.goal = complex(start[1], start[0]), complex(goal[1], goal[0])
        self.view, self.pay, self.used = view, PAY[reward], 0

    def answer(self, text: str):
        """(answer, reward, terminated, truncated, forget)"""
        if self.used == 100:
            return "Failure\n", -1, False, True, False
        self.used += 1
        bare = text[:-1] if text[-1:] == "\n" else text
        ahead = self.at + TURNS.get(bare, 0)
        self.at = ahead if ahead in FLOOR else self.at
        if self.at == self.goal:
            return "Success\n", self.pay[0], True, False, False
        known = bare in TURNS
        return (
            restated_text(self.at, self.goal, self.view),
            self.pay[2 if known else 1],
            False,
            False,
            not known,
        )


def any_text(dice: random.Random) -> str:
    move = dice.choice(LEGAL)
    odd = [
        move + " ",
        " " + move,
        move.upper(),
        move + "\n\n",
        "\n" + move,
        move + ".",
        move[5:],
        "move  left",
        "move top left",
        "",
        "\n",
        "Success\n",
        "".join(dice.choices("move lftrigh\né", k=dice.randrange(12))),
    ]
    return dice.choices([move, move + "\n", dice.choice(odd)], [8, 8, 4])[0]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"view": "walls"},
        {"view": "goal", "reward": "illegal_penalty"},
        {"view": "position", "reward": "illegal_penalty_diff_scale"},
    ],
)
def test_thousands_of_steps_match_the_restated_rules(options):
    env, dice, steps, ends = maze_env(**options), random.Random(0), 0, set()
    while steps < 3000:
        goal = dice.choice([GOAL, GOAL, dice.choice(FREE_CELLS)])
        (opening,), _ = env.reset(seed=dice.randrange(10**6), options={"goal": goal})
        twin = RestatedMaze(env.position, goal, env.view, env.reward)
        assert opening.text == restated_text(twin.at, twin.goal, env.view)
        done = False
        while not done:
            text = any_text(dice)
            (observation,), reward, terminated, truncated, info = env.step(text)
            got = (observation.text, reward, terminated, truncated, info.get("forget", False))
            assert got == twin.answer(text)
            assert env.reward_bounds[0] <= reward <= env.reward_bounds[1]
            done, steps = terminated or truncated, steps + 1
        ends.add(observation.text)
        assert info["success"] is terminated
    assert ends == {"Success\n", "Failure\n"}


def test_the_free_cells_are_the_double_t():
    assert {complex(column, row) for row, column in FREE_CELLS} == FLOOR
    assert len(FREE_CELLS) == 26 and GOAL == (8, 6) in FREE_CELLS


@pytest.mark.parametrize(
    "cell,walls",
    [
        ((1, 1), "There are walls to your left, above you, below you."),
        ((1, 3), "There is a wall above you."),
        ((1, 11), "There are walls to your right, above you, below you."),
        ((3, 9), "There are walls to your right, to your left."),
        ((5, 3), "There are walls to your left, below you."),
        ((5, 6), "There is a wall above you."),
        ((5, 8), "There are walls above you, below you."),
        ((7, 6), "There are walls to your right, to your left."),
    ],
)
def test_the_three_views_by_hand(cell, walls):
    row, column = cell
    spelled = f"{row}, {'1 ' if column > 9 else ''}{column % 10}"
    expected = {
        "position": "The goal is at position 8, 6. Your current position is at position "
        f"{spelled}. {walls}\n",
        "goal": f"The goal is at position 8, 6. {walls}\n",
        "walls": f"{walls}\n",
    }
    for view, text in expected.items():
        opening, _ = maze_env(view=view).reset(options={"init_position": cell})
        assert texts(opening) == [text] and opening[0].role == "user"


def test_numbers_are_spelled_digit_by_digit():
    opening, _ = maze_env().reset(options={"init_position": (1, 10), "goal": [1, 11]})
    assert opening[0].text.startswith(
        "The goal is at position 1, 1 1. Your current position is at position 1, 1 0. "
    )


def test_the_text_of_a_cell_without_walls(monkeypatch):
    """The double T has no such cell."""
    monkeypatch.setattr(
        maze, "FREE_CELLS", [(row, column) for row in range(3) for column in range(3)]
    )
    assert maze.walls_text.__wrapped__((1, 1)) == "There are no walls near you."


def test_the_last_steps_to_the_goal():
    env = maze_env()
    env.reset(options={"init_position": (6, 6)})
    assert env.step("move left")[1:3] == (-1.0, False) and env.position == (6, 6)  # a wall
    assert env.step("move sideways")[1:3] == (-4.0, False) and env.position == (6, 6)
    assert env.step("move down\n")[1:3] == (-1.0, False) and env.position == (7, 6)
    observation, reward, terminated, truncated, info = env.step("move down")
    assert (texts(observation), reward, terminated, truncated, info["success"]) == (
        ["Success\n"],
        0.0,
        True,
        False,
        True,
    )


@pytest.mark.parametrize(
    "text,legal",
    [
        ("move up", True),
        ("move up\n", True),
        ("move up\n\n", False),
        (" move up", False),
        ("Move up", False),
    ],
)
def test_what_counts_as_a_move(text, legal):
    env = maze_env()
    env.reset(options={"init_position": (2, 3)})
    assert env.step(text)[-1]["legal"] is legal
    assert env.position == ((1, 3) if legal else (2, 3))


@pytest.mark.parametrize("action,lowest", [("move up", -101), ("stay", -401)])
def test_the_step_after_the_hundredth_ignores_its_action_and_fails(action, lowest):
    env = maze_env()
    env.reset(options={"init_position": (7, 6)})
    total = 0.0
    for _ in range(100):
        _, reward, terminated, truncated, _ = env.step(
            action if env.position == (7, 6) or action == "stay" else "move down"
        )
        total += reward
        assert not terminated and not truncated
    env.position = (7, 6)
    observation, reward, terminated, truncated, info = env.step(
        "move down"
    )  # would have reached the goal
    assert (texts(observation), reward, terminated, truncated) == (["Failure\n"], -1.0, False, True)
    assert info["success"] is False and "forget" not in info and total + reward == lowest


def test_the_hundredth_step_may_still_succeed():
    env = maze_env()
    env.reset(options={"init_position": (7, 6)})
    for _ in range(99):
        env.step("move left")
    assert env.step("move down")[1:3] == (0.0, True)


def test_every_start_but_the_goal_is_equally_likely():
    env = maze_env()
    counts = dict.fromkeys(STARTS, 0)
    for seed in range(2500):
        env.reset(seed=seed)
        counts[env.position] += 1
    chi_squared = sum((n - 100) ** 2 / 100 for n in counts.values())
    assert chi_squared < 51.2  # 24 degrees of freedom, p = 0.001


def turns_of(env: Maze, actions: list[str]) -> list[Turn]:
    out = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        out.append(
            Turn(
                (),
                assistant(action),
                observation,
                reward,
                terminated=terminated,
                truncated=truncated,
                info=info,
            )
        )
    return out


def test_the_partial_views_context_has_forty_messages_and_restarts_after_illegal_text():
    env = maze_env("MazePO")
    opening, _ = env.reset(options={"init_position": (1, 1)})
    turns = turns_of(env, ["move right"] * 30)
    assert len(env.context.view(opening, turns[:19])) == 39
    recent = env.context.view(opening, turns)
    assert len(recent) == 40 and texts(recent)[::2] == ["move right"] * 20
    turns += turns_of(env, ["hm", "move left"])
    assert turns[30].info["forget"] is True and "forget" not in turns[31].info
    assert texts(env.context.view(opening, turns[:31])) == texts(turns[30].observation)
    assert len(env.context.view(opening, turns)) == 3


def test_the_full_views_context_is_the_last_message():
    env = maze_env("MazeFO")
    opening, _ = env.reset(options={"init_position": (1, 1)})
    turns = turns_of(env, ["move right", "hm", "move right"])
    assert [texts(env.context.view(opening, turns[:n])) for n in range(4)] == [
        texts(opening),
        *(texts(t.observation) for t in turns),
    ]


@pytest.mark.parametrize("name", ["goal", "init_position"])
@pytest.mark.parametrize(
    "cell", [(0, 0), (9, 6), (-1, 3), (1,), (1, 1, 1), "11", 7, None, (1.5, 1)]
)
def test_goals_and_starts_must_be_free_cells(name, cell):
    with pytest.raises(UserError, match=f"{name} must be a free cell"):
        maze_env().reset(options={name: cell})


def test_the_start_differs_from_the_goal():
    with pytest.raises(UserError, match="differ from the goal"):
        maze_env().reset(options={"init_position": GOAL})
    maze_env().reset(options={"init_position": GOAL, "goal": (1, 1)})


@pytest.mark.parametrize("options", [{"view": "sky"}, {"reward": "none"}])
def test_unknown_choices_are_errors_that_list_the_known_ones(options):
    with pytest.raises(
        UserError,
        match=r"position, goal, walls.*standard, illegal_penalty, illegal_penalty_diff_scale",
    ):
        maze_env(**options)


def test_only_the_published_tasks_have_score_anchors():
    assert maze_env("MazeFO").score_anchors == (-101, -83, -6.84)
    assert maze_env("MazePO").score_anchors == (-101, -83, -25.75)
    assert maze_env(view="goal").score_anchors is None
    assert maze_env(reward="illegal_penalty").score_anchors is None


def mean_return(env: Maze, player, games: int, seed: int = 0) -> float:
    """Over the 25 start cells in turn."""
    rng, total = np.random.default_rng(seed), 0.0
    for game in range(games):
        env.reset(options={"init_position": STARTS[game % 25]})
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(player(env, rng))
            total, done = total + reward, terminated or truncated
    return total / games


def exact_mean(prob_expert: float) -> float:
    """The mean return over the starts by dynamic programming: v <- P (v - 1), where the goal is
    worth 0.
    """
    step = np.zeros((25, 25))
    for i, cell in enumerate(STARTS):
        for name in LEGAL:
            probability = (1 - prob_expert) / 4 + prob_expert * (
                shortest_moves(GOAL)[cell][1] == name
            )
            z = complex(cell[1], cell[0])
            ahead = z + TURNS[name] if z + TURNS[name] in FLOOR else z
            if ahead != 6 + 8j:
                step[i, STARTS.index((int(ahead.imag), int(ahead.real)))] += probability
    value = np.full(25, -1.0)  # the failing step
    for _ in range(100):
        value = step @ (value - 1)
    return float(value.mean())


@pytest.mark.parametrize("name", ["MazeFO", "MazePO"])
def test_the_experts_mean_return_over_the_25_starts_is_minus_6_84(name):
    assert mean_return(maze_env(name), Maze.scripted_policies["expert"], 25) == pytest.approx(
        -6.84, abs=1e-12
    )
    assert exact_mean(1.0) == pytest.approx(-6.84, abs=1e-12)


def test_the_expert_takes_a_shortest_path_to_any_goal():
    for goal in FREE_CELLS:
        distances = {goal: 0}
        while len(distances) < 26:
            distances |= {
                (r, c): d + 1
                for (y, x), d in distances.items()
                for r, c in ((y, x + 1), (y, x - 1), (y + 1, x), (y - 1, x))
                if (r, c) in FREE_CELLS and (r, c) not in distances
            }
        assert {cell: way[0] for cell, way in shortest_moves(goal).items()} == {
            c: d for c, d in distances.items() if d
        }
        for cell, (distance, move) in shortest_moves(goal).items():
            assert distances[(cell[0] + MOVES[move][0], cell[1] + MOVES[move][1])] == distance - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "player,prob_expert,exact", [("random", 0.0, -85.893), ("mixture", 0.017, -82.939)]
)
def test_mean_returns_match_dynamic_programming(player, prob_expert, exact):
    """300 games with a standard deviation of about 31: the tolerance is 4 standard errors."""
    assert exact_mean(prob_expert) == pytest.approx(exact, abs=1e-3)
    assert mean_return(maze_env(), Maze.scripted_policies[player], 300) == pytest.approx(
        exact, abs=7
    )


def test_a_mixture_takes_a_probability():
    with pytest.raises(UserError, match="probability"):
        replace(DATA_POLICY, first_probability=-0.1)
    env = maze_env()
    env.reset(options={"init_position": (7, 6)})
    expert = replace(DATA_POLICY, first_probability=1.0)
    assert {expert(env, np.random.default_rng(0)) for _ in range(20)} == {"move down"}

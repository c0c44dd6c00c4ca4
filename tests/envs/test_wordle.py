"""Wordle against hand-worked tables, its restated rules, and known numbers."""

import math
import random
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from agentrl_jax.environment import ScriptedPolicy, make
from agentrl_jax.envs.lmrl import wordle
from agentrl_jax.envs.lmrl.wordle import DATA_POLICY, Wordle, feedback_table, word_list
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant, texts


def wordle_env(**options) -> Wordle:
    env = make("agentrl/Wordle-v0", options)
    assert isinstance(env, Wordle)
    return env


def restated_marks(guess: str, target: str, official: bool) -> str:
    if not official:
        return " ".join(
            {True: "g", False: "y" if c in target else "b"}[target[i] == c]
            for i, c in enumerate(guess)
        )
    marks, purse = ["b"] * 5, list(target)
    for i in range(5):
        if guess[i] == target[i]:
            marks[i] = "g"
            purse.remove(guess[i])
    for i in range(5):
        if marks[i] == "b" and guess[i] in purse:
            marks[i] = "y"
            purse.remove(guess[i])
    return " ".join(marks)


def restated_game(actions, target: str, listed: set[str], official: bool, penalty: float):
    """Yields (answer, reward, terminated) until the game is over."""
    for left in range(5, -1, -1):
        word = re.sub(" ", "", re.sub(r"^\s+|\s+$", "", next(actions)))
        known = re.fullmatch("[a-z]{5}", word) is not None and word in listed
        won = known and word == target
        yield (
            (restated_marks(word, target, official) if known else "") + "\n",
            0.0 if won else -1.0 if known else penalty,
            won or not left,
        )
        if won:
            return


def any_text(dice: random.Random, words: tuple[str, ...]) -> str:
    """Mostly words of the list, and texts that a language model might write instead."""
    word = dice.choice(words)
    kinds = {
        "word": (" ".join(word), 12),
        "newline": (" ".join(word) + "\n", 4),
        "together": (word, 1),
        "padded": (f"  {word[:2]}   {word[2:]} \n\n", 1),
        "upper": (" ".join(word).upper(), 1),
        "short": (" ".join(word[:4]), 1),
        "long": (" ".join(word + "s"), 1),
        "beyond": (dice.choice(word_list()), 1),
        "anything": ("".join(dice.choices("abcde \n\t,é1", k=dice.randrange(9))), 1),
        "inner newline": (word[:2] + "\n" + word[2:], 1),
        "scrambled": (" ".join(dice.sample(word, 5)), 1),
    }
    texts_, weights = zip(*kinds.values())
    return dice.choices(texts_, weights)[0]


@pytest.mark.parametrize(
    "options",
    [{}, {"words": 40}, {"words": 64, "official_duplicates": True}, {"bad_word_reward": -10.0}],
)
def test_thousands_of_steps_match_the_restated_rules(options):
    env, dice, steps = wordle_env(**options), random.Random(0), 0
    listed = set(env.words)
    while steps < 1500:
        env.reset(seed=dice.randrange(10**6))
        actions = [any_text(dice, env.words) for _ in range(6)]
        rules = (
            env.target,
            listed,
            options.get("official_duplicates", False),
            options.get("bad_word_reward", -1.0),
        )
        for action, expected in zip(actions, restated_game(iter(actions), *rules)):
            observation, reward, terminated, truncated, info = env.step(action)
            assert (*texts(observation), reward, terminated, truncated) == (*expected, False)
            assert info["legal"] == (expected[0] != "\n")
            assert info.get("success") == ((expected[1] == 0) if terminated else None)
            steps += 1
        assert terminated


@pytest.mark.parametrize("official", [False, True])
def test_the_feedback_table_matches_the_restated_rule(official):
    table, dice = feedback_table(official), random.Random(1)
    repeated = [i for i, word in enumerate(word_list()) if len(set(word)) < 5]
    pairs = [(dice.randrange(431), dice.randrange(431)) for _ in range(2000)]
    pairs += [(dice.choice(repeated), dice.choice(repeated)) for _ in range(2000)]
    for g, t in pairs:
        assert (
            wordle.FEEDBACK_TEXTS[table[g, t]]
            == restated_marks(word_list()[g], word_list()[t], official) + "\n"
        )


def test_the_feedback_table_is_cached_and_read_only():
    assert feedback_table(False) is feedback_table(False)
    with pytest.raises(ValueError, match="read-only"):
        feedback_table(False)[0, 0] = 1


@pytest.mark.parametrize(
    "guess,target,lmrl,official",
    [
        ("slate", "slate", "g g g g g", "g g g g g"),
        ("crane", "slate", "b b g b g", "b b g b g"),
        ("stone", "slate", "g y b b g", "g y b b g"),
        # one e, at its place already; then one o, for the first of two
        ("level", "hello", "y g b y y", "y g b b y"),
        ("goose", "hello", "b y y b y", "b y b b y"),
        # two p in apple: of three the last goes without, of two none does
        ("puppy", "apple", "y b g y b", "y b g b b"),
        ("paper", "apple", "y y g y b", "y y g y b"),
        # one t, for the first; one e, for the green before the yellow to its left
        ("teeth", "paint", "y b b y b", "y b b b b"),
        ("sleep", "water", "b b y g b", "b b b g b"),
        ("happy", "paper", "b g g y b", "b g g y b"),
        ("eight", "night", "b g g g g", "b g g g g"),
    ],
)
def test_marks_by_hand(guess, target, lmrl, official):
    for rule, expected in ((False, lmrl), (True, official)):
        env = wordle_env(official_duplicates=rule)
        env.reset(options={"target": target})
        observation, reward, terminated, _, info = env.step(" ".join(guess))
        assert texts(observation) == [expected + "\n"]
        assert (reward, terminated, info.get("success")) == (
            (0.0, True, True) if guess == target else (-1.0, False, None)
        )


@pytest.mark.parametrize(
    "text,legal",
    [
        ("s l a t e", True),
        ("s l a t e\n", True),
        # spaces are removed, as LMRL-Gym does, so these are the same word
        ("slate", True),
        (" s l a t e", True),
        ("s  l a t e", True),
        ("sl ate\n", True),
        ("\ts l a t e \n\n", True),
        # no letters a-z, or not five of them, or no word
        ("S L A T E", False),
        ("Slate", False),
        ("s\tl a t e", False),
        ("s l a\nt e", False),
        ("s,l,a,t,e", False),
        ("s l a t", False),
        ("s l a t e s", False),
        ("s l a t e s l a t e", False),
        ("x x x x x", False),
        ("ｓ ｌ ａ ｔ ｅ", False),
        ("", False),
    ],
)
def test_what_counts_as_the_word_slate(text, legal):
    env = wordle_env()
    env.reset(options={"target": "slate"})
    observation, reward, terminated, _, info = env.step(text)
    assert (texts(observation), reward, terminated, info["legal"]) == (
        (["g g g g g\n"], 0.0, True, True) if legal else (["\n"], -1.0, False, False)
    )


def test_a_game_has_the_format_of_lmrl_gym():
    env = wordle_env()
    opening, info = env.reset(seed=0, options={"target": "water"})
    assert texts(opening) == ["Wordle:\n"] and opening[0].role == "user" and info == {}
    rewards = [env.step(assistant(text))[1] for text in ("s l a t e", "b o g u s", "w a t e r")]
    assert rewards == [-1.0, -1.0, 0.0]
    assert env.render() == "Wordle:\ns l a t e\nb b y y y\nb o g u s\n\nw a t e r\ng g g g g\n"
    assert "bogus" not in env.words


def test_the_sixth_miss_ends_the_game_as_a_loss():
    env = wordle_env()
    env.reset(options={"target": "slate"})
    ends = [env.step("c r a n e")[1:] for _ in range(6)]
    assert [end[1] for end in ends] == [False] * 5 + [True]
    assert sum(end[0] for end in ends) == -6
    assert not any(end[2] for end in ends) and ends[-1][3]["success"] is False


def test_an_illegal_guess_costs_a_guess_and_gives_no_information():
    env = wordle_env(bad_word_reward=-10.0)
    env.reset(options={"target": "slate"})
    env.step("c r a n e")
    known = env.consistent_mask()
    observation, reward, *_ = env.step("nonsense")
    assert texts(observation) == ["\n"] and reward == -10 and env.reward_bounds == (-10, 0)
    assert np.array_equal(env.consistent_mask(), known)
    assert [env.step("nonsense")[2] for _ in range(4)] == [False, False, False, True]


def test_a_smaller_task_accepts_only_its_words():
    env = wordle_env(words=64)
    assert env.words == word_list()[:64] and "64" in env.rules
    env.reset(seed=0)
    assert env.step(" ".join(word_list()[64]))[-1]["legal"] is False
    assert env.step(" ".join(word_list()[63]))[-1]["legal"] is True
    assert {wordle_target(env, seed) for seed in range(800)} == set(env.words)


def wordle_target(env: Wordle, seed: int) -> str:
    env.reset(seed=seed)
    return env.target


def test_only_tasks_with_known_means_have_score_anchors():
    assert wordle_env().score_anchors == (-6, -4.121715, -1.935)
    for options in ({"words": 65}, {"bad_word_reward": -10.0}, {"official_duplicates": True}):
        assert wordle_env(**options).score_anchors is None


@pytest.mark.parametrize("words", [64, 128, 256])
def test_the_anchors_of_shorter_lists_are_measured(words):
    env = wordle_env(words=words)
    assert env.score_anchors is not None
    _, mean, best = env.score_anchors
    expert = np.mean(
        [play_out(env, Wordle.scripted_policies["expert"], {"target": word}) for word in env.words]
    )
    assert round(float(expert), 3) == best
    games = [play_out(env, Wordle.scripted_policies["mixture"], None, seed) for seed in range(2000)]
    assert abs(np.mean(games) - mean) < 4 * np.std(games) / len(games) ** 0.5


def play_out(env: Wordle, player, options: dict | None, seed: int = 0) -> float:
    """The return of one game."""
    random, total, done = np.random.default_rng([seed, 1]), 0.0, False
    env.reset(seed=seed, options=options)
    while not done:
        _, reward, terminated, truncated, _ = env.step(player(env, random))
        total, done = total + reward, terminated or truncated
    return total


@pytest.mark.parametrize("options", [{"words": 0}, {"words": 432}, {"words": -1}])
def test_an_invalid_option_is_an_error(options):
    with pytest.raises(UserError, match="words must be between 1 and 431"):
        wordle_env(**options)


@pytest.mark.parametrize("target", ["xxxxx", "s l a t e", "", 3, None, word_list()[64]])
def test_a_target_must_be_a_word_of_the_task(target):
    with pytest.raises(UserError, match="target must be one of the 64 words"):
        wordle_env(words=64).reset(options={"target": target})


def returns(env: Wordle, player: ScriptedPolicy, games: int, seed: int = 0) -> np.ndarray:
    rng, out = np.random.default_rng(seed), np.zeros(games)
    for game in range(games):
        env.reset(seed=seed * games + game)
        done = False
        while not done:
            _, reward, done, _, _ = env.step(player(env, rng))
            out[game] += reward
    return out


def expert_returns(env: Wordle) -> list[float]:
    """The return of the deterministic expert for every target."""
    out, rng = [], np.random.default_rng(0)
    for target in env.words:
        env.reset(options={"target": target})
        total, done = 0.0, False
        while not done:
            _, reward, done, _, _ = env.step(env.scripted_policies["expert"](env, rng))
            total += reward
        out.append(total)
    return out


@pytest.mark.parametrize("official", [False, True])
def test_consistent_words_have_the_same_feedback_history(official):
    env, rng = wordle_env(official_duplicates=official), np.random.default_rng(3)
    for seed in range(8):
        env.reset(seed=seed)
        history = []
        for _ in range(3):
            action = str(env.scripted_policies["random"](env, rng))
            observation, _, done, _, _ = env.step(action)
            history.append((action.replace(" ", ""), observation[0].text.strip()))
            expected = [
                all(restated_marks(g, word, official) == marks for g, marks in history)
                for word in env.words
            ]
            assert (
                env.consistent_mask().tolist() == expected and expected[env.words.index(env.target)]
            )
            if done:
                break


def restated_expert(words: tuple[str, ...], alive: list[str]) -> str:
    """The word with the least expected entropy; ties to a consistent word, then to list order."""

    def entropy_left(guess: str) -> float:
        cells = Counter(restated_marks(guess, target, False) for target in alive).values()
        return round(sum(n / len(alive) * math.log2(n) for n in cells), 8)

    return min(
        words, key=lambda guess: (entropy_left(guess), guess not in alive, words.index(guess))
    )


def test_the_expert_maximizes_information_gain():
    env, rng = wordle_env(words=60), np.random.default_rng(0)
    for target in env.words[::6]:
        env.reset(options={"target": target})
        for _ in range(3):
            alive = [word for word, allowed in zip(env.words, env.consistent_mask()) if allowed]
            action = env.scripted_policies["expert"](env, rng)
            assert action == " ".join(restated_expert(env.words, alive))
            if env.step(action)[2]:
                break


def test_the_experts_last_guess_is_a_consistent_word():
    env = wordle_env()
    for target in env.words[:30]:
        env.reset(options={"target": target})
        for _ in range(5):
            env.step("n o n e")
        guess = str(env.scripted_policies["expert"](env, np.random.default_rng(0))).replace(" ", "")
        assert env.consistent_mask()[env.words.index(guess)]


@pytest.mark.parametrize("count,expected", [(431, -835 / 431), (128, -208 / 128), (64, -91 / 64)])
def test_the_experts_mean_return_is_known_exactly(count, expected):
    """LMRL-Gym's list gives -1.942 [n = 431], its top anchor is -1.935; ours gives -1.937."""
    scores = expert_returns(wordle_env(words=count))
    assert np.mean(scores) == pytest.approx(expected, abs=1e-12)
    assert min(scores) >= -4


@pytest.mark.parametrize("count,expected", [(431, -2.350), (128, -1.901), (64, -1.679)])
def test_uniform_consistent_play_has_the_measured_return(count, expected):
    """LMRL-Gym's list gives -2.33.

    Measured over 40,000 games (+- 0.008); the tolerance is 4 standard errors of 2,000 games.
    """
    assert np.mean(
        returns(wordle_env(words=count), Wordle.scripted_policies["consistent"], 2000)
    ) == pytest.approx(expected, abs=0.075)


def test_random_play_almost_always_loses():
    """A game is won with probability at most 6/431; a winner's return is -0 .. -5."""
    win = [(1 / 431) * (430 / 431) ** k for k in range(6)]
    expected = sum(-k * p for k, p in enumerate(win)) - 6 * (1 - sum(win))
    assert np.mean(
        returns(wordle_env(), Wordle.scripted_policies["random"], 2000)
    ) == pytest.approx(expected, abs=0.05)


def test_the_mixture_has_the_published_mean_and_deviation():
    """LMRL-Gym's data: mean return -4.12, standard deviation 1.59."""
    scores = returns(wordle_env(), Wordle.scripted_policies["mixture"], 2000)
    assert np.mean(scores) == pytest.approx(-4.12, abs=0.15)
    assert np.std(scores) == pytest.approx(1.59, abs=0.1)


def test_mixtures_with_probability_one_and_zero():
    env = wordle_env()
    env.reset(options={"target": "slate"})
    env.step("c r a n e")
    possible = {
        " ".join(word) for word, allowed in zip(env.words, env.consistent_mask()) if allowed
    }
    rng = np.random.default_rng(0)

    def smart(probability: float) -> ScriptedPolicy:
        return replace(DATA_POLICY, first_probability=probability)

    assert {smart(1.0)(env, rng) for _ in range(200)} <= possible
    assert len({smart(0.0)(env, rng) for _ in range(200)}) > 100
    with pytest.raises(UserError, match="probability"):
        smart(1.5)

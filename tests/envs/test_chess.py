"""Chess against an independent statement of its rules, known counts, and hostile text."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from restated_chess import Board, cell_of, name, perft

from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

pytest.importorskip("pyspiel", reason="OpenSpiel is not installed: make test-extras does it")

from agentrl_jax.envs.lmrl.chess import rules, search
from agentrl_jax.envs.lmrl.chess.chess import Chess
from agentrl_jax.envs.lmrl.chess.opponents import Search

KIWIPETE = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"
STARTS = (
    rules.START,
    KIWIPETE,
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",  # pinned takers of a pawn that passed
    "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N w - - 0 1",  # promotions, with and without taking
    "2k5/8/8/Q6Q/8/8/8/Q3K2Q w - - 0 1",  # moves that need a file, a rank, or both
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
    "7k/8/8/8/8/8/R7/K7 w - - 80 80",  # the fifty moves are near
    "4k3/8/8/2B5/8/4b3/8/4K3 w - - 0 1",  # one taking away from bare material
)


def chess_env(**options) -> Chess:
    env = make("agentrl/Chess-v0", options)
    assert isinstance(env, Chess)
    return env


# --- OpenSpiel's rules and texts, beside the restated ones


def test_the_restated_rules_count_as_is_known():
    assert perft(Board.read(rules.START), 3) == 8902
    assert perft(Board.read(KIWIPETE), 2) == 2039


def test_openspiel_counts_the_same():
    def count(state: rules.State, depth: int) -> int:
        return 1 if depth == 0 else sum(count(state.child(a), depth - 1) for a in state.legal_actions())

    assert count(rules.position(rules.START), 3) == 8902
    assert count(rules.position(KIWIPETE), 3) == 97862


def both(start: str, dice: random.Random, plies: int = 1000) -> Iterator[tuple[Board, rules.State]]:
    """A random game, on both sides of the comparison."""
    board, state = Board.read(start), rules.position(start)
    for _ in range(plies):
        yield board, state
        if board.verdict():
            return
        san, move = dice.choice([(board.san(m), m) for m in board.legal])
        board, state = board.play(move), state.child(rules.moves(state)[san])


def compare(games: int, seed: int, plies: int) -> int:
    dice, positions = random.Random(seed), 0
    for game in range(games):
        for board, state in both(STARTS[game % len(STARTS)], dice, plies):
            verdict = board.verdict()
            assert rules.fen(state) == board.fen()
            assert state.is_terminal() == bool(verdict)
            assert any(state.returns()) == (verdict == "mate")
            if not verdict:
                assert sorted(rules.moves(state)) == sorted(map(board.san, board.legal))
            positions += 1
    return positions


def test_positions_moves_and_endings_are_the_restated_ones():
    assert compare(len(STARTS), seed=1, plies=25) > 150


@pytest.mark.slow
def test_thousands_of_positions_are_the_restated_ones():
    assert compare(4 * len(STARTS), seed=2, plies=1000) > 2000


def test_engines_moves_and_records_are_the_restated_ones():
    board, state = Board.read(KIWIPETE), rules.position(KIWIPETE)
    for board, state in both(KIWIPETE, random.Random(5), plies=40):
        if board.verdict():
            break
        ours = {san: rules.lan(state, action) for san, action in rules.moves(state).items()}
        assert ours == {board.san(m): name(m.start) + name(m.end) + m.promotion for m in board.legal}
    _, start, played = rules.record(state).replace("fen ", "|", 1).replace(" moves ", "|").split("|")
    replay = Board.read(start)
    for text in played.split():
        replay = replay.play(next(m for m in replay.legal if name(m.start) + name(m.end) + m.promotion == text))
    assert replay.fen() == board.fen()


# --- the world


def said(dice: random.Random, sans: list[str]) -> str:
    """Mostly legal moves, and what a language model might write instead."""
    san = dice.choice(sans)
    kinds = {
        " ".join(san): 10,
        " ".join(san) + "\n": 4,
        san: 2,
        " ".join(san.rstrip("+#")): 2,
        f"  {san[0]}  {san[1:]} \n\n": 1,
        " ".join(san).swapcase(): 1,
        san + "!": 1,
        san + "++": 1,
        "+" + san: 1,
        san[0] + "\n" + san[1:]: 1,
        f"1. {san}": 1,
        dice.choice(["e 4", "O - O", "0 - 0", "Q x f 7 #", "--", "resign", "", "\n", "é", "a 9", "e 8 = K", "Z", "e2e4", "N" * 5000]): 3,
    }
    return dice.choices(list(kinds), list(kinds.values()))[0]


def restated_step(board: Board, text: str, answer: str) -> tuple[Board, float, bool, bool]:
    """The board after the agent's text and the opponent's answer, which is read off the observation: reward, over, legal."""
    wanted = "".join(text.split(" ")).strip()
    by_san = {board.san(m): m for m in board.legal}
    marks = {san.rstrip("+#") + mark: m for san, m in by_san.items() for mark in ("", "+", "#")}
    if wanted not in marks:
        return board, -1.0, False, False
    board = board.play(marks[wanted])
    if board.verdict():
        return board, 1.0 if board.verdict() == "mate" else 0.0, True, True
    replies = [then for m in board.legal if (then := board.play(m)).fen() == answer]
    assert len(replies) == 1, "the opponent made no legal move"
    (board,) = replies
    return board, -1.0 if board.verdict() == "mate" else 0.0, bool(board.verdict()), True


def read(observation) -> str:
    """The FEN that an observation spells."""
    (text,) = texts(observation)
    assert text == " ".join(text[::2])
    return text[::2]


@pytest.mark.parametrize(
    "options,starts,steps",
    [({"opponent": "random"}, STARTS, 120), ({"depth": 1, "blunder": 0.5}, STARTS[:1], 60), ({"moves": 20}, STARTS[:1], 60)],
)
def test_steps_follow_the_restated_rules(options, starts, steps):
    env, dice, limit = chess_env(**options), random.Random(0), options.get("moves", 400)
    while steps > 0:
        start = dice.choice(starts)
        board, over, late, turns = Board.read(start), False, False, 0
        opening, _ = env.reset(seed=dice.randrange(10**6), options={"fen": start})
        assert read(opening) == start
        while not (over or late):
            text = said(dice, [board.san(m) for m in board.legal])
            observation, reward, terminated, truncated, info = env.step(text)
            board, expected, over, legal = restated_step(board, text, read(observation))
            turns, steps = turns + 1, steps - 1
            late = turns > limit and not over
            assert (read(observation), reward, terminated, truncated) == (board.fen(), expected, over, late)
            assert info["legal"] == legal
            assert info.get("success") == ((expected == 1) if over or late else None)


def test_an_observation_reads_as_in_lmrl_gym():
    env = chess_env()
    (message,), info = env.reset(seed=0)
    spelled = "r n b q k b n r / p p p p p p p p / 8 / 8 / 8 / 8 / P P P P P P P P / R N B Q K B N R   w   K Q k q   -   0   1"
    assert (message.text, message.role, info) == (spelled, "user", {})
    (message,), _ = chess_env(bc_state_newline=True).reset(seed=0)
    assert message.text == spelled + "\n"
    assert env.context.view((message,), ()) == [message]


def test_castling_mating_and_being_mated():
    env = chess_env(opponent="random")
    env.reset(seed=0, options={"fen": "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"})
    observation, *_, info = env.step("O - O\n")
    assert info["legal"] and read(observation).split("/")[-1].startswith("R4RK1 w ")
    env.reset(seed=0, options={"fen": "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"})
    observation, reward, terminated, _, info = env.step("R a 8")
    assert (read(observation), reward, terminated, info["success"]) == ("R5k1/5ppp/8/8/8/8/8/6K1 b - - 1 1", 1.0, True, True)
    env = chess_env(blunder=0.0)
    env.reset(seed=0, options={"fen": "r5k1/7p/8/8/8/8/5PPP/6K1 w - - 0 1"})
    _, reward, terminated, truncated, info = env.step("K h 1")
    assert (reward, terminated, truncated, info["success"], info["legal"]) == (-1.0, True, False, False, True)


def test_a_stalemate_is_a_draw():
    env = chess_env()
    env.reset(seed=0, options={"fen": "7k/8/6K1/8/8/8/8/5Q2 w - - 0 1"})
    _, reward, terminated, _, info = env.step("Q f 7")
    assert (reward, terminated, info) == (0.0, True, {"legal": True, "success": False, "rewards": {"task": 0.0}})


def test_nothing_but_illegal_text_costs_401():
    env, total = chess_env(), 0.0
    opening, _ = env.reset(seed=0)
    for turn in range(401):
        observation, reward, terminated, truncated, info = env.step("e 5")
        assert observation == opening and not terminated and truncated == (turn == 400)
        total += reward
    assert total == -401 and env.score_anchors == (-401, 0.21, 1) and info["success"] is False


def test_a_pawn_that_passed_is_named_only_where_it_can_be_taken():
    state = rules.position("8/8/8/8/kp5Q/8/2P5/K7 w - - 0 1")  # taking would uncover the king
    assert rules.fen(state.child(rules.moves(state)["c4"])) == "8/8/8/8/kpP4Q/8/8/K7 b - - 0 1"
    state = rules.position("8/8/8/8/kp6/8/2P5/K6Q w - - 0 1")
    assert rules.fen(state.child(rules.moves(state)["c4"])) == "8/8/8/8/kpP5/8/8/K6Q b - c3 0 1"


@pytest.mark.parametrize(
    "fen",
    [
        None,
        3,
        "",
        "x",
        rules.START + "\n",
        rules.START.replace(" w ", " b "),
        "8/8/8/8/8/8/8/8 w - - 0 1",
        "k7/8/K7/8/8/8/8 w - - 0 1",
        "k7/8/K7/8/8/8/8/9 w - - 0 1",
        "k7/8/KK6/8/8/8/8/8 w - - 0 1",
        "kP6/8/K7/8/8/8/8/8 w - - 0 1",
        "kK6/8/8/8/8/8/8/7R w - - 0 1",  # the kings touch
        "k6R/8/8/8/8/8/8/K7 w - - 0 1",  # Black is in check
        "k7/8/K7/8/8/8/8/7R w KQkq - 0 1",
        "k7/8/K7/8/8/8/8/7R w  - 0 1",
        "k7/8/K7/8/8/8/8/7R w - e6 0 1",
        "k7/8/K7/8/8/8/8/7R w - - 100 1",
        "k7/8/K7/8/8/8/8/8 w - - 0 1",  # nothing to mate with
        "7K/5q2/6k1/8/8/8/8/8 w - - 0 1",  # White is stalemated
        "k7/QQQQQQQQ/QQQQQQQQ/8/8/8/8/7K w - - 0 1",
    ],
)
def test_a_game_starts_only_where_it_can(fen):
    with pytest.raises(UserError, match="no game can start"):
        chess_env().reset(options={"fen": fen})


@pytest.mark.parametrize("start", [*STARTS[:-1], "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3"])
def test_what_can_be_a_start_is_one(start):
    assert rules.check(start) == start


def test_attacks_are_the_restated_ones():
    dice = random.Random(3)
    for start in STARTS:
        for board, state in both(start, dice, plies=20):
            square = dice.choice("abcdefgh") + dice.choice("12345678")
            pieces = rules.squares(str(state).split()[0])
            assert rules.placement(pieces) == str(state).split()[0]
            for white in (True, False):
                assert rules.attacks(pieces, square, white) == board.attacked(cell_of(square), white)


@pytest.mark.parametrize(
    "options,word",
    [
        ({"opponent": "kasparov"}, "opponent"),
        ({"teacher": "kasparov"}, "teacher"),
        ({"moves": 0}, "moves"),
        ({"moves": 2.5}, "moves"),
        ({"depth": 9}, "depth"),
        ({"depth": "2"}, "depth"),
        ({"blunder": 1.5}, "blunder"),
        ({"noise": -1.0}, "noise"),
        ({"opponent": "random", "elo": 1500}, "elo"),
        ({"opponent": "stockfish", "program": "no-such-engine"}, "no-such-engine"),
        ({"opponent": "stockfish", "program": "true", "elo": "strong"}, "elo"),
        ({"opponent": "stockfish", "program": "true", "movetime": 0}, "movetime"),
        ({"opponent": "stockfish", "program": "true", "movetime": None}, "movetime"),
        ({"opponent": "stockfish", "program": "true", "skill": -1, "elo": None}, "skill"),
        ({"opponent": "stockfish", "program": "true", "skill": 3}, "elo=None"),
    ],
)
def test_an_option_that_is_wrong_is_an_error_that_names_it(options, word):
    with pytest.raises(UserError, match=word):
        chess_env(**options)


# --- players


def played(env: Environment, player: str, seed: int) -> float:
    rng, total, done = np.random.default_rng([seed, 1]), 0.0, False
    env.reset(seed=seed)
    while not done:
        _, reward, terminated, truncated, _ = env.step(env.players[player](env, rng))
        total, done = total + reward, terminated or truncated
    return total


@pytest.mark.slow
def test_the_mixture_is_about_as_good_as_the_published_data():
    """Mean return .21, standard deviation .97; over 400 games ours has .22 and .92."""
    env = chess_env()
    scores = [played(env, "mixture", seed) for seed in range(40)]
    assert abs(np.mean(scores) - 0.21) < 3 * 0.97 / 40**0.5 and np.std(scores) > 0.7


@pytest.mark.parametrize(
    "fen,san",
    [
        ("7k/8/8/3q4/4P3/8/8/K7 w - - 0 1", "exd5"),
        ("6k1/3r1ppp/8/3p4/8/8/8/K2Q4 w - - 0 1", None),  # the pawn is guarded
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", "Ra8#"),
        ("7k/R7/8/8/8/8/8/1R4K1 w - - 0 1", "Rb8#"),
        ("k7/8/1K6/8/8/8/8/7R w - - 0 1", "Rh8#"),
    ],
)
def test_the_search_takes_what_hangs_and_mates(fen, san):
    state = rules.position(fen)
    for seed in range(5):
        chosen = state.action_to_string(Search(blunder=0.0).move(state, np.random.default_rng(seed)))
        assert chosen == san if san else chosen != "Qxd5"


def minimax(state: rules.State, depth: int) -> int:
    """For who is to move, without any cut."""
    side = 1 if state.current_player() == rules.WHITE else -1
    if state.is_terminal():
        return -(search.MATE + search.SOONER * depth) if any(state.returns()) else 0
    if depth == 0:
        return side * search.evaluate(state)
    return max(-minimax(state.child(action), depth - 1) for action in state.legal_actions())


def test_cutting_changes_no_worth():
    dice, rng = random.Random(7), np.random.default_rng(0)
    for start in (STARTS[0], STARTS[2], STARTS[6], "8/8/8/3k4/8/8/8/KQ6 w - - 0 1"):
        for _, state in list(both(start, dice, plies=14))[::4]:
            if not state.is_terminal():
                worths = {action: -minimax(state.child(action), 1) for action in state.legal_actions()}
                assert worths[search.best_move(state, 2, rng)] == max(worths.values())


def test_a_blunder_of_one_is_uniform_play():
    state, rng = rules.position(rules.START), np.random.default_rng(0)
    assert {Search(blunder=1.0).move(state, rng) for _ in range(300)} == set(state.legal_actions())

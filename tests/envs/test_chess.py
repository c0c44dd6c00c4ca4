"""Chess against an independent implementation of its rules, known counts, and hostile text."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from support.restated_chess import Board, cell_of, perft, square_name

from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts

pytest.importorskip("pyspiel", reason="OpenSpiel is not installed: make test-extras does it")

from agentrl_jax.envs.lmrl.chess import rules, search
from agentrl_jax.envs.lmrl.chess.chess import Chess
from agentrl_jax.envs.lmrl.chess.opponents import SearchOpponent

KIWIPETE = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"
STARTS = (
    rules.START_FEN,
    KIWIPETE,
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",  # pinned pawns that could capture en passant
    "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N w - - 0 1",  # promotions, with and without captures
    "2k5/8/8/Q6Q/8/8/8/Q3K2Q w - - 0 1",  # moves that need a file, a rank, or both
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
    "7k/8/8/8/8/8/R7/K7 w - - 80 80",  # close to the fifty-move rule
    "4k3/8/8/2B5/8/4b3/8/4K3 w - - 0 1",  # one capture away from insufficient material
)


def chess_env(**options) -> Chess:
    env = make("agentrl/Chess-v0", options)
    assert isinstance(env, Chess)
    return env


def test_the_restated_rules_have_the_known_perft_counts():
    assert perft(Board.from_fen(rules.START_FEN), 3) == 8902
    assert perft(Board.from_fen(KIWIPETE), 2) == 2039


def test_openspiel_has_the_same_perft_counts():
    def count(state: rules.Position, depth: int) -> int:
        return (
            1
            if depth == 0
            else sum(count(state.child(a), depth - 1) for a in state.legal_actions())
        )

    assert count(rules.position_from_fen(rules.START_FEN), 3) == 8902
    assert count(rules.position_from_fen(KIWIPETE), 3) == 97862


def both(
    start: str, dice: random.Random, plies: int = 1000
) -> Iterator[tuple[Board, rules.Position]]:
    """A random game in both implementations."""
    board, state = Board.from_fen(start), rules.position_from_fen(start)
    for _ in range(plies):
        yield board, state
        if board.game_result():
            return
        san, move = dice.choice([(board.san(m), m) for m in board.legal_moves])
        board, state = board.apply_and_remember(move), state.child(rules.legal_moves(state)[san])


def compare(games: int, seed: int, plies: int) -> int:
    dice, positions = random.Random(seed), 0
    for game in range(games):
        for board, state in both(STARTS[game % len(STARTS)], dice, plies):
            verdict = board.game_result()
            assert rules.position_fen(state) == board.fen()
            assert state.is_terminal() == bool(verdict)
            assert any(state.returns()) == (verdict == "mate")
            if not verdict:
                assert sorted(rules.legal_moves(state)) == sorted(map(board.san, board.legal_moves))
            positions += 1
    return positions


def test_positions_moves_and_results_match_the_restated_rules():
    assert compare(len(STARTS), seed=1, plies=25) > 150


@pytest.mark.slow
def test_thousands_of_positions_match_the_restated_rules():
    assert compare(4 * len(STARTS), seed=2, plies=1000) > 2000


def test_long_algebraic_moves_and_histories_match_the_restated_rules():
    board, state = Board.from_fen(KIWIPETE), rules.position_from_fen(KIWIPETE)
    for board, state in both(KIWIPETE, random.Random(5), plies=40):
        if board.game_result():
            break
        ours = {
            san: rules.move_to_lan(state, action)
            for san, action in rules.legal_moves(state).items()
        }
        assert ours == {
            board.san(m): square_name(m.start) + square_name(m.end) + m.promotion
            for m in board.legal_moves
        }
    _, start, episode_return = (
        rules.uci_position(state).replace("fen ", "|", 1).replace(" moves ", "|").split("|")
    )
    replay = Board.from_fen(start)
    for text in episode_return.split():
        replay = replay.apply_and_remember(
            next(
                m
                for m in replay.legal_moves
                if square_name(m.start) + square_name(m.end) + m.promotion == text
            )
        )
    assert replay.fen() == board.fen()


def any_move_text(dice: random.Random, sans: list[str]) -> str:
    """Mostly legal moves, and texts that a language model might write instead."""
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
        dice.choice(
            [
                "e 4",
                "O - O",
                "0 - 0",
                "Q x f 7 #",
                "--",
                "resign",
                "",
                "\n",
                "é",
                "a 9",
                "e 8 = K",
                "Z",
                "e2e4",
                "N" * 5000,
            ]
        ): 3,
    }
    return dice.choices(list(kinds), list(kinds.values()))[0]


def restated_step(board: Board, text: str, answer: str) -> tuple[Board, float, bool, bool]:
    """(board, reward, over, legal) after a text and the opponent's move, read off the answer."""
    move_text = "".join(text.split(" ")).strip()
    by_san = {board.san(m): m for m in board.legal_moves}
    marks = {san.rstrip("+#") + mark: m for san, m in by_san.items() for mark in ("", "+", "#")}
    if move_text not in marks:
        return board, -1.0, False, False
    board = board.apply_and_remember(marks[move_text])
    if board.game_result():
        return board, 1.0 if board.game_result() == "mate" else 0.0, True, True
    replies = [
        then for m in board.legal_moves if (then := board.apply_and_remember(m)).fen() == answer
    ]
    assert len(replies) == 1, "the opponent made no legal move"
    (board,) = replies
    return board, -1.0 if board.game_result() == "mate" else 0.0, bool(board.game_result()), True


def read(observation) -> str:
    """The FEN that an observation spells out."""
    (text,) = texts(observation)
    assert text == " ".join(text[::2])
    return text[::2]


@pytest.mark.parametrize(
    "options,starts,steps",
    [
        ({"opponent": "random"}, STARTS, 120),
        ({"depth": 1, "blunder": 0.5}, STARTS[:1], 60),
        ({"moves": 20}, STARTS[:1], 60),
    ],
)
def test_steps_match_the_restated_rules(options, starts, steps):
    env, dice, limit = chess_env(**options), random.Random(0), options.get("moves", 400)
    while steps > 0:
        start = dice.choice(starts)
        board, over, late, turns = Board.from_fen(start), False, False, 0
        opening, _ = env.reset(seed=dice.randrange(10**6), options={"fen": start})
        assert read(opening) == start
        while not (over or late):
            text = any_move_text(dice, [board.san(m) for m in board.legal_moves])
            observation, reward, terminated, truncated, info = env.step(text)
            board, expected, over, legal = restated_step(board, text, read(observation))
            turns, steps = turns + 1, steps - 1
            late = turns > limit and not over
            assert (read(observation), reward, terminated, truncated) == (
                board.fen(),
                expected,
                over,
                late,
            )
            assert info["legal"] == legal
            assert info.get("success") == ((expected == 1) if over or late else None)


def test_an_observation_has_the_format_of_lmrl_gym():
    env = chess_env()
    (message,), info = env.reset(seed=0)
    spelled = (
        "r n b q k b n r / p p p p p p p p / 8 / 8 / 8 / 8 / P P P P P P P P / R N B Q K B N R   "
        "w   K Q k q   -   0   1"
    )
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
    assert (read(observation), reward, terminated, info["success"]) == (
        "R5k1/5ppp/8/8/8/8/8/6K1 b - - 1 1",
        1.0,
        True,
        True,
    )
    env = chess_env(blunder=0.0)
    env.reset(seed=0, options={"fen": "r5k1/7p/8/8/8/8/5PPP/6K1 w - - 0 1"})
    _, reward, terminated, truncated, info = env.step("K h 1")
    assert (reward, terminated, truncated, info["success"], info["legal"]) == (
        -1.0,
        True,
        False,
        False,
        True,
    )


def test_a_stalemate_is_a_draw():
    env = chess_env()
    env.reset(seed=0, options={"fen": "7k/8/6K1/8/8/8/8/5Q2 w - - 0 1"})
    _, reward, terminated, _, info = env.step("Q f 7")
    assert (reward, terminated, info) == (
        0.0,
        True,
        {"legal": True, "success": False, "rewards": {"task": 0.0}},
    )


def test_an_episode_of_illegal_texts_returns_minus_401():
    env, total = chess_env(), 0.0
    opening, _ = env.reset(seed=0)
    for turn in range(401):
        observation, reward, terminated, truncated, info = env.step("e 5")
        assert observation == opening and not terminated and truncated == (turn == 400)
        total += reward
    assert total == -401 and env.score_anchors == (-401, 0.21, 1) and info["success"] is False


def test_the_en_passant_square_is_given_only_where_a_capture_is_legal():
    state = rules.position_from_fen(
        "8/8/8/8/kp5Q/8/2P5/K7 w - - 0 1"
    )  # the capture would expose the king
    assert (
        rules.position_fen(state.child(rules.legal_moves(state)["c4"]))
        == "8/8/8/8/kpP4Q/8/8/K7 b - - 0 1"
    )
    state = rules.position_from_fen("8/8/8/8/kp6/8/2P5/K6Q w - - 0 1")
    assert (
        rules.position_fen(state.child(rules.legal_moves(state)["c4"]))
        == "8/8/8/8/kpP5/8/8/K6Q b - c3 0 1"
    )


@pytest.mark.parametrize(
    "fen",
    [
        None,
        3,
        "",
        "x",
        rules.START_FEN + "\n",
        rules.START_FEN.replace(" w ", " b "),
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
def test_an_invalid_start_position_is_refused(fen):
    with pytest.raises(UserError, match="no game can start"):
        chess_env().reset(options={"fen": fen})


@pytest.mark.parametrize(
    "start", [*STARTS[:-1], "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3"]
)
def test_a_valid_start_position_is_accepted(start):
    assert rules.validate_fen(start) == start


def test_attacks_match_the_restated_rules():
    dice = random.Random(3)
    for start in STARTS:
        for board, state in both(start, dice, plies=20):
            square = dice.choice("abcdefgh") + dice.choice("12345678")
            pieces = rules.parse_placement(str(state).split()[0])
            assert rules.format_placement(pieces) == str(state).split()[0]
            for white in (True, False):
                assert rules.is_attacked(pieces, square, white) == board.is_attacked(
                    cell_of(square), white
                )


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
def test_an_invalid_option_is_an_error_that_names_it(options, word):
    with pytest.raises(UserError, match=word):
        chess_env(**options)


def episode_return(env: Environment, player: str, seed: int) -> float:
    rng, total, done = np.random.default_rng([seed, 1]), 0.0, False
    env.reset(seed=seed)
    while not done:
        _, reward, terminated, truncated, _ = env.step(env.scripted_policies[player](env, rng))
        total, done = total + reward, terminated or truncated
    return total


@pytest.mark.slow
def test_the_mixtures_mean_return_is_near_the_published_one():
    """Mean return .21, standard deviation .97; over 400 games ours has .22 and .92."""
    env = chess_env()
    scores = [episode_return(env, "mixture", seed) for seed in range(40)]
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
def test_the_search_captures_hanging_pieces_and_mates(fen, san):
    state = rules.position_from_fen(fen)
    for seed in range(5):
        chosen = state.action_to_string(
            SearchOpponent(blunder=0.0).move(state, np.random.default_rng(seed))
        )
        assert chosen == san if san else chosen != "Qxd5"


def minimax(state: rules.Position, depth: int) -> int:
    """The value for the side to move, without cuts."""
    side = 1 if state.current_player() == rules.WHITE else -1
    if state.is_terminal():
        return -(search.MATE_VALUE + search.MATE_PLY_BONUS * depth) if any(state.returns()) else 0
    if depth == 0:
        return side * search.evaluate(state)
    return max(-minimax(state.child(action), depth - 1) for action in state.legal_actions())


def test_alpha_beta_cuts_change_no_value():
    dice, rng = random.Random(7), np.random.default_rng(0)
    for start in (STARTS[0], STARTS[2], STARTS[6], "8/8/8/3k4/8/8/8/KQ6 w - - 0 1"):
        for _, state in list(both(start, dice, plies=14))[::4]:
            if not state.is_terminal():
                worths = {
                    action: -minimax(state.child(action), 1) for action in state.legal_actions()
                }
                assert worths[search.best_move(state, 2, rng)] == max(worths.values())


def test_blunder_probability_one_is_uniform_play():
    state, rng = rules.position_from_fen(rules.START_FEN), np.random.default_rng(0)
    assert {SearchOpponent(blunder=1.0).move(state, rng) for _ in range(300)} == set(
        state.legal_actions()
    )

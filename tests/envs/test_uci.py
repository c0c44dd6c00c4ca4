"""UCI engines: Stockfish where it is installed, and fake engines that fail in various ways."""

import gc
import os
import pickle
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl.chess.uci import UCIEngine, find_program
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError

START = "fen rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
needs_rules = pytest.mark.skipif(
    find_spec("pyspiel") is None, reason="OpenSpiel is not installed: make test-extras does it"
)
try:
    STOCKFISH = find_program("stockfish")
except UserError:
    STOCKFISH = ""
needs_stockfish = pytest.mark.skipif(
    not STOCKFISH, reason="Stockfish is not installed: apt-get install stockfish does it"
)

FAKE = '''#!{python}
"""An engine that answers {word!r} as `how` says, and everything else as an engine does."""
import os, sys, time
def say(*lines):
    for line in lines: print(line, flush=True)
for line in sys.stdin:
    word = line.split()[0]
    open({log!r}, "a").write(line)
    if word == {word!r}:
        {how}
    if word == "uci":
        elo = "option name UCI_Elo type spin default 1350 min 1350 max 2850"
        say("Toy 1", "id name Toy", elo, "uciok")
    elif word == "isready": say("readyok")
    elif word == "go": say("info depth 1", "bestmove e7e5 ponder g1f3")
    elif word == "quit": break
'''


def fake_engine(folder: Path, word: str = "", how: str = "pass") -> str:
    """A program that does `how` on the command `word` and logs its input to the file "log"."""
    path = folder / "engine"
    path.write_text(FAKE.format(python=sys.executable, word=word, how=how, log=str(folder / "log")))
    path.chmod(0o755)
    return str(path)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_gone(pid: int, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_alive(pid)


def ask(engine: UCIEngine, **settings) -> str:
    return engine.best_move(START, settings, "nodes 10", 0.0)


def test_commands_are_sent_in_order_and_options_once(tmp_path):
    engine = UCIEngine(fake_engine(tmp_path))
    assert (
        ask(engine, UCI_Elo=1500, UCI_LimitStrength=True)
        == ask(engine, UCI_Elo=1500, UCI_LimitStrength=True)
        == "e7e5"
    )
    ask(engine, UCI_Elo=1600)
    engine.close()
    question = ["ucinewgame", "isready", f"position {START}", "go nodes 10"]
    sent = [
        "uci",
        "setoption name UCI_Elo value 1500",
        "setoption name UCI_LimitStrength value true",
        *question,
        *question,
    ]
    assert (tmp_path / "log").read_text().splitlines() == [
        *sent,
        "setoption name UCI_Elo value 1600",
        *question,
        "quit",
    ]


def test_a_setting_out_of_range_is_an_error_that_names_the_range(tmp_path):
    engine = UCIEngine(fake_engine(tmp_path))
    with pytest.raises(UserError, match="UCI_Elo from 1350 to 2850, not 1200"):
        engine.configure({"UCI_Elo": 1200})
    assert engine.pid is None


WRONG = {
    "hangs": ("time.sleep(600)", DeadlineExceeded),
    "leaves": ("sys.exit(3)", EnvironmentFailure),
    "is killed": ("os.kill(os.getpid(), 9)", EnvironmentFailure),
    "half a line": ("os.write(1, b'\\xff\\x00 bestmov'); time.sleep(600)", DeadlineExceeded),
    "closes": ("os.close(1); time.sleep(600)", EnvironmentFailure),
    "one endless line": (
        "[os.write(1, b'x' * 65536) for _ in range(40)]; time.sleep(600)",
        EnvironmentFailure,
    ),
    "endless lines": (
        "[os.write(1, b'no idea\\n' * 8000) for _ in range(40)]; time.sleep(600)",
        EnvironmentFailure,
    ),
}


@pytest.mark.parametrize(
    "word,wrong",
    [
        *(("go", wrong) for wrong in WRONG),
        ("uci", "hangs"),
        ("uci", "leaves"),
        ("isready", "hangs"),
    ],
)
def test_a_failed_engine_is_killed_and_the_next_request_starts_another(tmp_path, word, wrong):
    how, failure = WRONG[wrong]
    engine = UCIEngine(
        fake_engine(tmp_path, word, how), timeout=0.4 if failure is DeadlineExceeded else 20.0
    )
    with pytest.raises(failure, match="engine"):
        ask(engine)
    assert engine.pid is None
    fake_engine(tmp_path)
    engine.timeout = 20.0
    assert ask(engine) == "e7e5"
    engine.close()


@pytest.mark.parametrize(
    "noise",
    [
        "say('hello', '', 'bestmove a2a3', 'uciok', 'bestmove')",
        "os.write(1, b'\\xff\\xfe\\n\\x00\\n')",
    ],
)
def test_unexpected_lines_are_ignored(tmp_path, noise):
    engine = UCIEngine(fake_engine(tmp_path, "isready", noise))
    assert ask(engine) == "e7e5"
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("stubborn", [False, True])
def test_no_process_is_left(tmp_path, stubborn):
    program = fake_engine(tmp_path, "quit", "time.sleep(600)" if stubborn else "pass")
    engine = UCIEngine(program)
    ask(engine)
    pid = engine.pid
    engine.close()
    engine.close()
    assert pid and not is_alive(pid)
    ask(engine)
    pid = engine.pid
    del engine
    gc.collect()
    assert pid and not is_alive(pid)


@pytest.mark.slow
def test_an_engine_ends_with_its_python_process(tmp_path):
    code = f"""
from agentrl_jax.envs.lmrl.chess.uci import UCIEngine
engine = UCIEngine({fake_engine(tmp_path)!r})
engine.best_move({START!r}, {{}}, "nodes 1", 0.0)
print(engine.pid, flush=True)
"""
    for ending in ("", "import os; os.kill(os.getpid(), 9)"):
        done = subprocess.run(
            [sys.executable, "-c", code + ending],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
        )
        assert is_gone(int(done.stdout)), done.stderr


def test_a_pickled_copy_starts_its_own_engine(tmp_path):
    engine = UCIEngine(fake_engine(tmp_path), timeout=7.0)
    ask(engine)
    twin = pickle.loads(pickle.dumps(engine))
    assert (twin.program, twin.timeout, twin.pid) == (engine.program, 7.0, None)
    assert ask(twin) == "e7e5" and twin.pid != engine.pid
    twin.close()
    engine.close()


def test_a_missing_program_is_an_error_that_names_the_package():
    with pytest.raises(UserError, match="install Debian's package stockfish"):
        find_program("no-such-engine")


@needs_rules
@pytest.mark.parametrize("reply", ["e2e4", "(none)", "e7e8q", "", "e7e5e4"])
def test_an_illegal_reply_is_an_environment_failure(tmp_path, reply):
    program = fake_engine(tmp_path, "go", f"say('bestmove {reply}'); continue")
    env = make("agentrl/Chess-v0", {"opponent": "stockfish", "program": program, "elo": None})
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match="no legal move"):
        env.step("e 4")
    env.close()


@needs_rules
def test_an_engine_plays_in_the_environment(tmp_path):
    env = make(
        "agentrl/Chess-v0",
        {"opponent": "stockfish", "program": fake_engine(tmp_path), "movetime": 5},
    )
    env.reset(seed=0)
    (message,), reward, *_ = env.step("d 4")
    assert (
        message.text[::2] == "rnbqkbnr/pppp1ppp/8/4p3/3P4/8/PPP1PPPP/RNBQKBNR w KQkq - 0 2"
        and reward == 0
    )
    env.close()
    assert f"position {START} moves d2d4" in (tmp_path / "log").read_text().splitlines()
    assert "go movetime 5" in (tmp_path / "log").read_text().splitlines()


@needs_rules
def test_a_fork_repeats_no_request(tmp_path):
    def questions() -> int:
        return (tmp_path / "log").read_text().count("go ")

    env = make("agentrl/Chess-v0", {"opponent": "stockfish", "program": fake_engine(tmp_path)})
    env.reset(seed=0)
    env.step("e 4")
    assert env.fork().render() == env.fork(1).render() == env.render() and questions() == 1
    twin = env.fork(0)
    assert "e7e5" not in twin.render() and questions() == 1
    twin.step("d 4")
    assert questions() == 2 and twin.render() != env.render()
    env.close()


@needs_rules
@needs_stockfish
@pytest.mark.parametrize("name", ["agentrl/Chess-v0", "agentrl/ChessEndgames-v0"])
def test_stockfish_plays(name):
    env = make(name, {"opponent": "stockfish", "movetime": 5})
    rng, done, moves = np.random.default_rng(0), False, 0
    env.reset(seed=0)
    while not done and moves < 12:
        _, _, terminated, truncated, info = env.step(env.scripted_policies["random"](env, rng))
        done, moves = terminated or truncated, moves + 1
        assert info["legal"]
    pid = env.opponent.engine.pid  # type: ignore[attr-defined]
    env.close()
    assert pid and not is_alive(pid)


@needs_rules
@needs_stockfish
def test_stockfish_with_a_node_limit_is_reproducible():
    games = []
    for _ in range(2):
        env = make("agentrl/Chess-v0", {"opponent": "stockfish", "elo": None, "nodes": 500})
        env.reset(seed=0)
        games.append([env.step(text)[0] for text in ("e 4", "d 4", "a 3", "h 3")])
        env.close()
    assert games[0] == games[1]


@needs_rules
@needs_stockfish
def test_a_strength_out_of_range_is_an_error():
    with pytest.raises(UserError, match="UCI_Elo from 1350 to 2850, not 1200"):
        make("agentrl/Chess-v0", {"opponent": "stockfish", "elo": 1200})
    with pytest.raises(UserError, match="Skill Level from 0 to 20, not 21"):
        make("agentrl/Chess-v0", {"opponent": "stockfish", "elo": None, "skill": 21})


@needs_rules
@needs_stockfish
@pytest.mark.slow
def test_stockfish_can_be_the_expert():
    env = make("agentrl/ChessEndgames-v0", {"teacher": "stockfish"})
    rng = np.random.default_rng(0)
    for player in ("mixture", "expert"):
        env.reset(seed=1)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = env.step(env.scripted_policies[player](env, rng))
            done = terminated or truncated
    assert reward == 1.0
    env.close()

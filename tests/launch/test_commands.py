"""The commands as a user types them: a wrong flag is answered in one sentence, and correct ones do
what they say.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import assert_one_clear_sentence, run

WORDLE = "--config=configs/wordle_grpo.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["--config=configs/"]),
        (["--config=configs/nope.py"], ["no config file configs/nope.py"]),
        ([WORDLE + ":huge"], ["no variant 'huge'", "smoke"]),
        ([WORDLE, "--config.phases.sft.stepz=3"], ["stepz"]),
        ([WORDLE, "--config.phases.sft.steps=many"], ["config.phases.sft.steps=many"]),
        ([WORDLE, "--nonsense=1"], ["nonsense"]),
        ([WORDLE, "stray"], ["'stray'", "--name=value"]),
        (
            [WORDLE, "--config.environment.name=agentrl/Nope-v0"],
            ["agentrl/Nope-v0", "agentrl/Wordle-v0"],
        ),
        ([WORDLE, "--config.environment.options.words=9999"], ["9999"]),
        ([WORDLE, "--config.demonstrations.player=nobody"], ["nobody", "expert"]),
        ([WORDLE, "--config.policy.heads=3"], ["heads"]),
        ([WORDLE, "--config.mesh.data=3"], ["mesh"]),
        ([WORDLE, "--run_dir=/proc/nowhere"], ["/proc/nowhere", "--run_dir"]),
    ],
)
def test_wrong_flags_of_train_are_named(flags: list[str], words: list[str], tmp_path: Path) -> None:
    where = (
        []
        if any(flag.startswith("--run_dir") for flag in flags)
        else [f"--run_dir={tmp_path / 'run'}"]
    )
    assert_one_clear_sentence(run("train", *flags, *where), *words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "word"),
    [(b"", "empty"), (b"not an array record at all" * 100, "corrupt"), (None, "no demonstration")],
)
def test_a_bad_demonstration_file_is_named(
    content: bytes | None, word: str, tmp_path: Path
) -> None:
    path = tmp_path / "demonstrations.array_record"
    if content is not None:
        path.write_bytes(content)
    result = run(
        "train", WORDLE, f"--config.demonstrations.path={path}", f"--run_dir={tmp_path / 'run'}"
    )
    assert_one_clear_sentence(result, str(path), word)


@pytest.mark.slow
def test_an_error_in_a_config_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        "from agentrl_jax import Phase\n\n\ndef get_config():\n    return Phase(stepz=1)\n"
    )
    result = run("train", f"--config={path}", f"--run_dir={tmp_path / 'run'}")
    assert_one_clear_sentence(result, "stepz")
    path.write_text("def get_config():\n    return {}\n")
    result = run("train", f"--config={path}", f"--run_dir={tmp_path / 'run'}")
    assert_one_clear_sentence(result, str(path), "must return an Experiment")


@pytest.mark.slow
def test_fresh_never_deletes_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert_one_clear_sentence(
        run("train", WORDLE, f"--run_dir={tmp_path}", "--fresh"), str(tmp_path), "no run folder"
    )
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["--environment"]),
        (["--environment=agentrl/Wordle-v0"], ["--player"]),
        (["--environment=agentrl/Wordle-v0", "--player=nobody"], ["nobody", "expert"]),
        (["--environment=agentrl/Wordle-v0", "--player=expert", "--option=words"], ["name=value"]),
        (["--run_dir=/nowhere"], ["/nowhere", "config.json"]),
        (
            ["--environment=agentrl/Wordle-v0", "--player=expert", f"--seed={2**63}"],
            ["--seed must be from 0 to 9,223,372,036,854,775,807"],
        ),
    ],
)
def test_wrong_flags_of_evaluate_are_named(flags: list[str], words: list[str]) -> None:
    assert_one_clear_sentence(run("evaluate", *flags), *words)


@pytest.mark.slow
def test_evaluate_prints_the_experts_row() -> None:
    result = run(
        "evaluate",
        "--environment=agentrl/MazeFO-v0",
        "--player=expert",
        "--episodes=50",
        "--workers=1",
    )
    assert result.returncode == 0, result.stderr
    line = next(line for line in result.stdout.splitlines() if "expert" in line)
    assert "100 %" in line and re.search(r"-[5-9]\.\d\d", line)


@pytest.mark.slow
def test_a_seed_of_play_is_bounded_as_one_of_evaluate() -> None:
    result = run("play", "--environment=agentrl/Wordle-v0", f"--seed={10**30}")
    assert_one_clear_sentence(result, "--seed must be from 0 to 9,223,372,036,854,775,807")


@pytest.mark.slow
def test_a_person_can_play_a_game_to_its_end() -> None:
    result = run(
        "play",
        "--environment=agentrl/Wordle-v0",
        "--option=words=1",
        "--seed=1",
        stdin="x\ns l a t e s\n" + "\n" * 10,
    )
    assert result.returncode == 0, result.stderr
    assert "five-letter word" in result.stdout and "lost after 6 turns, return -6" in result.stdout


@pytest.mark.slow
def test_a_person_may_leave_a_game() -> None:
    result = run("play", "--environment=agentrl/MazePO-v0", stdin="move up\n")
    assert result.returncode == 0 and "left" in result.stdout and "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_scripted_policy_can_be_watched() -> None:
    result = run("play", "--environment=agentrl/MazeFO-v0", "--watch=expert", "--seed=3")
    assert result.returncode == 0 and "Success" in result.stdout and "won after" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "arguments", "words"),
    [
        ("train", [], ["Train: agentrl-train --config=", "--config:", "--[no]fresh"]),
        ("plan", [], ["Needs libtpu", "--topology:"]),
        ("bench", ["cost"], ["prints one JSON line", "--max_turns:"]),
        ("tpu.__main__", ["run"], ["a machine that was", "--accelerator:"]),
    ],
)
def test_an_installed_program_prints_its_purpose_and_its_flags(
    program: str, arguments: list[str], words: list[str]
):
    """pip's entry script calls `main`, and is itself the main module."""
    script = (
        f"import sys; from agentrl_jax.launch.{program} import main; sys.argv = "
        f"['agentrl-x', *{arguments}, '--help']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and all(word in done.stdout for word in words), (
        done.stdout + done.stderr
    )
    assert "absl." not in done.stdout


@pytest.mark.slow
def test_a_program_ends_quietly_when_its_output_pipe_closes():
    command = f"{sys.executable} -m agentrl_jax.launch.train --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 141) and done.stderr == ""

"""Benchmarks: their reports at a tiny size, repeats interleaved with a rival's, and errors for
wrong flags.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import assert_one_clear_sentence, run

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.agentic import Agentic
from agentrl_jax.launch.benchmarks.cost import Cost, slope_ratio
from agentrl_jax.launch.benchmarks.latency import Latency, steady_token_rate
from agentrl_jax.launch.benchmarks.rivals import (
    RivalProcess,
    compare_measurements,
    quartiles,
    run_interleaved,
)
from agentrl_jax.launch.benchmarks.sampling import Sampling
from agentrl_jax.launch.benchmarks.utterances import PARTS, Utterances, steps_table
from agentrl_jax.workers.latency import EnvLatency

MINUTE: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "hidden": 16,
    "heads": 2,
    "kv_heads": 1,
    "head_size": 8,
    "vocab": 258,
}
SHAPE = [f"--{name}={value}" for name, value in MINUTE.items()]

RIVAL = """
import json, sys
plays = {"turns": 3, "prompt": 9, "new": 4, "observation": 2}
print(json.dumps({"params": 7, "plays": plays, "heard": sys.argv[1:]}), flush=True)
for i, line in enumerate(sys.stdin):
    seconds = {"seconds": 10.0 * 2**i, "rollout_seconds": 5.0 * 2**i}
    print(json.dumps({**seconds, "sampled_tokens": 100}), flush=True)
"""


def rival(folder: Path, text: str = RIVAL) -> dict[str, Any]:
    """The flags of a rival that runs the program `text`."""
    script = folder / "rival.py"
    script.write_text(text)
    return {"rival": "trl", "rival_python": sys.executable, "rival_script": str(script)}


def line_of(report: dict[str, Any]) -> dict[str, Any]:
    """The report as it is read from the JSON line, with its common fields checked."""
    line = json.loads(json.dumps(report))
    assert {"bench", "sizes", "params", "versions", "cores", "load", "device"} <= set(line)
    assert line["compilations"] == 0
    return line


@pytest.mark.slow
def test_sampling_writes_every_token_and_counts_prefills(tmp_path: Path):
    bench = Sampling(**MINUTE, batch=3, prompt=5, new=7, repeats=2, burst=4, **rival(tmp_path))
    line = line_of(bench.run())
    assert (
        line["ours"]["sampled_tokens"]["median"] == 21
        and line["ours"]["tokens_per_second"]["median"] > 0
    )
    assert line["ours"]["prefill_tokens"]["median"] <= 15
    # The rival's first repeat is a warmup: 20 and 40 s remain, 100 tokens each.
    assert (
        line["rival"]["seconds"]["median"] == 30
        and line["rival"]["tokens_per_second"]["median"] == 3.75
    )
    assert {"--batch=3", "--prompt=5", "--new=7"} - set(line["rival_says"]["heard"]) == {
        "--batch=3"
    }  # trl takes --group
    assert {"--mode=plain", "--group=3", "--prompts=1", "--vocab=258"} <= set(
        line["rival_says"]["heard"]
    )
    assert (
        line["params"] == 258 * 16 + 2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 16 + 2 * 8 + 3 * 16
    )  # table, attention, MLP, norms


@pytest.mark.slow
def test_agentic_plays_what_the_rival_plays(tmp_path: Path):
    bench = Agentic(**MINUTE, prompts=2, group=2, turns=9, repeats=1, **rival(tmp_path))
    line = line_of(bench.run())
    assert line["sizes"]["turns"] == 3 and line["sizes"]["prompt"] == 9
    ours = {name: quartile["median"] for name, quartile in line["ours"].items()}
    assert ours["sampled_tokens"] == ours["trained_tokens"] == 2 * 2 * 3 * 4
    assert 0 < ours["rollout_seconds"] < ours["seconds"] and ours["groups_with_signal"] == 1
    assert line["ratio"]["seconds"]["median"] == pytest.approx(20 / ours["seconds"], rel=1e-3)
    assert line["ratio"]["rollout_tokens_per_second"]["median"] == pytest.approx(
        ours["rollout_tokens_per_second"] / 10, rel=1e-3
    )


@pytest.mark.slow
def test_latency_samples_the_same_tokens_in_lock_step_and_is_faster():
    bench = Latency(
        **MINUTE,
        rows=2,
        num_slots=2,
        episodes=8,
        turns=2,
        prompt=4,
        new=4,
        observation=3,
        delays="0,40",
        repeats=1,
    )
    line = line_of(bench.run())
    assert line["same_tokens"] and line["sizes"]["places"] == 2
    slow = line["delays"]["40x"]
    assert (
        slow["ours"]["sampled_tokens"]
        == slow["lock_step"]["sampled_tokens"]
        == line["no_delay"]["sampled_tokens"]
        == 8 * 2 * 4
    )
    assert (
        slow["ours"]["seconds"] > line["no_delay"]["seconds"] and slow["of_no_delay"]["median"] < 1
    )
    assert slow["ratio"]["median"] > 0.9


@pytest.mark.slow
def test_cost_counts_the_same_prefill_for_every_turn():
    line = line_of(
        Cost(**MINUTE, episodes=2, max_turns=4, prompt=4, new=3, observation=4, repeats=1).run()
    )
    assert line["turns"] == [1, 2, 4] and set(line["seconds_per_turn"]) == {"1", "2", "4"}
    assert line["sampled_tokens"] == 2 * 3 * (1 + 2 + 4)
    assert line["prefill_slope_ratio"] == 1


@pytest.mark.slow
def test_utterances_time_each_part_at_each_length(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("<!-- steps -->\n<!-- /steps -->\n")
    small: dict[str, Any] = {
        "encoder_layers": 1,
        "encoder_width": 16,
        "encoder_hidden": 16,
        "encoder_heads": 2,
        "state": 12,
        "batch": 4,
        "microbatch": 4,
    }
    line = line_of(
        Utterances(**MINUTE, **small, utterance=("2", "6"), repeats=2, page=str(page)).run()
    )
    assert set(line["seconds"]) == {"2", "6"}
    assert all(
        set(parts) == set(PARTS) and min(parts.values()) > 0 for parts in line["seconds"].values()
    )
    assert [row.split(" | ")[0] for row in page.read_text().splitlines()[3:5]] == ["| 2", "| 6"]


def test_a_critics_step_includes_the_sampled_utterances_that_its_v_is_trained_on():
    (row,) = steps_table(
        {8: {"sampling": 0.3, "critic": 0.1, "advantage": 0.1, "actor": 0.1}}
    ).splitlines()[2:]
    assert row == "| 8 | 300 ms | 100 ms | 100 ms | 100 ms | 2.5 | 2.0 |"


def test_slopes_compare_the_last_doubling_with_the_first():
    assert slope_ratio({1: 5, 2: 7, 4: 11, 8: 19}) == 1
    assert slope_ratio({n: n * n for n in (1, 2, 4, 8)}) == 4  # 12 per turn instead of 3


def test_a_rate_is_measured_while_there_are_episodes_left_to_start():
    begun = [(float(i), 100 * i) for i in range(10)]
    assert steady_token_rate(begun, 3, 7.0) == 100 and steady_token_rate(begun, 5, 7.0) == 7


def test_both_sides_alternate_and_the_first_pair_of_repeats_is_dropped(tmp_path: Path):
    order: list[str] = []

    class Noted(RivalProcess):
        def repeat(self) -> dict[str, float]:
            order.append("they")
            return super().repeat()

    def ours() -> dict[str, float]:
        order.append("we")
        return {"seconds": 1.0, "sampled_tokens": 10}

    flags = rival(tmp_path)
    noted = Noted(flags["rival_python"], Path(flags["rival_script"]), ["--size=3"])
    our_measurements, theirs = run_interleaved(ours, noted, 3)
    noted.close()
    assert order == ["they", "we", "we", "they", "they", "we", "we", "they"]
    assert noted.ready_message["heard"] == ["--size=3"]
    assert len(our_measurements) == 3 and [x["seconds"] for x in theirs] == [20.0, 40.0, 80.0]
    ratio = compare_measurements(our_measurements, theirs)["ratio"]
    assert ratio["seconds"] == {"low": 30, "median": 40, "high": 60}
    assert ratio["tokens_per_second"]["median"] == 4  # 10/s against 100 in 20, 40 and 80 s: 2, 4, 8


def test_quartiles_are_interpolated():
    assert quartiles([4, 1, 2, 3]) == {"low": 1.75, "median": 2.5, "high": 3.25}


def test_delays_are_log_normal_and_determined_by_the_seed():
    delay = EnvLatency(2.0, 1.0)
    delays = [delay.sample(seed, turn) for seed in range(2000) for turn in range(2)]
    assert sum(delays) / len(delays) == pytest.approx(2.0, rel=0.1)
    assert sorted(delays)[len(delays) // 2] == pytest.approx(2.0 * 2.718281828**-0.5, rel=0.1)
    assert EnvLatency(2.0, 1.0).sample(3, 1) == delay.sample(3, 1) != delay.sample(3, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import sys\nsys.exit('no such thing as torch')", "no such thing as torch"),
        ("print('hello')", "no JSON line"),
        (RIVAL.replace("10.0", "1 / 0 * 10.0"), "ZeroDivisionError"),
    ],
)
def test_the_error_of_a_failing_rival_is_reported(text: str, words: str, tmp_path: Path):
    bench = Sampling(**rival(tmp_path, text))
    with pytest.raises(UserError, match=words), bench.open_rival([]) as process:
        run_interleaved(lambda: {"seconds": 1.0, "sampled_tokens": 1}, process, 1)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"rival": "nobody"}, "tunix or trl"),
        ({"rival": "trl", "rival_script": "nowhere.py"}, "no script nowhere.py"),
        ({"rival": "trl", "rival_python": "nowhere/python"}, "no interpreter"),
        ({"family": "gpt"}, "neither qwen2 nor qwen3"),
    ],
)
def test_a_wrong_flag_is_named(flags: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(Path(__file__).parents[3])
    with pytest.raises(UserError, match=words):
        dataclasses.replace(Sampling(**MINUTE), **flags).run()


@pytest.mark.slow
def test_the_command_prints_one_line():
    done = run("bench", "sampling", *SHAPE, "--batch=2", "--prompt=3", "--new=4", "--repeats=1")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["ours"]["sampled_tokens"]["median"] == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], ["sampling|agentic|update|attention|utterances|latency|async|cost"]),
        (
            ["speed", "--repeats=3"],
            ["sampling|agentic|update|attention|utterances|latency|async|cost", "'speed'"],
        ),
        (["sampling", "--repeats=0"], ["repeats"]),
        (["sampling", "--turns=3"], ["turns"]),
        (["cost", "stray"], ["'stray'"]),
        (["agentic", "--vocab=100"], ["--vocab=100"]),
        (["latency", "--delays=1,long"], ["--delays=1,long"]),
        (["utterances", "--utterance=8,32"], ["--utterance=8,32"]),
    ],
)
def test_wrong_flags_are_reported_in_one_sentence(flags: list[str], words: list[str]):
    assert_one_clear_sentence(run("bench", *flags), *words)


@pytest.mark.slow
def test_help_lists_a_benchs_flags():
    done = run("bench", "cost", "--help")
    assert (
        done.returncode == 0
        and "--max_turns" in done.stdout.replace("--[no]", "--")
        and "Turns are 1, 2, 4" in done.stdout
    )

"""Wrong command lines of every console script: each ends with status 2 and one sentence.

In them {empty} is an empty folder, {text} and {binary} are files, {damaged} is a damaged run
folder, and {foreign} a folder that is no run.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from outcome import Battery
from support.forked import run_forked
from support.processes import ROOT, process_environment

HUGE = str(10**30)
WORDLE = "--config=configs/wordle_grpo.py"
EXPERT = "--environment=agentrl/Wordle-v0 --player=expert"
RUN = "--run_dir={damaged}"
TPU = "up --name=a --zone=b"
GKE = "print --name=a --image=i"
PRESET = "--preset=qwen3_8b"
SIZES = "--topology=v5e:4x4 --sizes=layers=1"

# Of each script: its module, and a line without fault, to which a wrong flag is added.
COMMANDS: dict[str, tuple[str, str]] = {
    "agentrl-train": ("train", f"{WORDLE} --run_dir={{empty}}/run"),
    "agentrl-sweep": ("sweep", f"{WORDLE} --out={{empty}}/out --print_only"),
    "agentrl-evaluate": ("evaluate", EXPERT),
    "agentrl-data": ("data", "--task=wordle --out={empty}/data"),
    "agentrl-play": ("play", "--environment=agentrl/Wordle-v0 --watch=expert"),
    "agentrl-serve": ("serve", RUN),
    "agentrl-describe": ("describe", PRESET),
    "agentrl-plan": ("plan", SIZES),
    "agentrl-replay": ("replay", RUN),
    "agentrl-view": ("view", "{damaged}"),
    "agentrl-bench": ("bench", "sampling"),
    "agentrl-sandbox": ("sandbox", ""),
    "agentrl-tools": ("tools", "--tool=calculator"),
    "agentrl-tpu": ("tpu", TPU),
    "agentrl-gke": ("gke", GKE),
    "agentrl-slurm": ("slurm", "submit --name=a"),
}
UNKNOWN_FLAG = "--nonsense=1"  # added to the line of every script
# Flags of a number with values out of range or of another type, added to the script's line.
NUMBERS = {
    "agentrl-train": {
        "--config.seed": ("-1", HUGE, "x", "1.5"),
        "--config.evaluation.episodes": ("-1", "many"),
        "--config.phases.rl.steps": ("0", "-5", "x"),
        "--max_nonfinite_updates": ("0", "x"),
        "--processes": ("-2", "x"),
        "--process_id": ("7", "x"),
    },
    "agentrl-sweep": {"--parallel": ("0", "x"), "--seeds": ("", "-1", "x", "1,1", HUGE)},
    "agentrl-evaluate": {
        "--seed": ("-1", HUGE, str(2**63), "x"),
        "--episodes": ("0", "-1", "1.5"),
        "--temperature": ("-1", "nan", "inf", "x"),
        "--workers": ("-1", "x"),
    },
    "agentrl-play": {"--seed": ("-1", HUGE, "x"), "--temperature": ("-1", "nan")},
    "agentrl-data": {
        "--records": ("-1", "x"),
        "--seed": ("-1", HUGE),
        "--shards": ("-1",),
        "--processes": ("0",),
        "--validation": ("-2",),
    },
    "agentrl-serve": {
        "--port": ("-1", "65536", "x"),
        "--positions": ("-1",),
        "--rows": ("-1", "x"),
        "--send_timeout": ("0", "-1", "nan"),
        "--max_json_depth": ("0", "x"),
        "--max_connections": ("0",),
    },
    "agentrl-describe": {"--tensor": ("0", "x"), "--length": ("0", "-1")},
    "agentrl-plan": {"--rows": ("0", "x"), "--fsdp": ("0", "-2"), "--show": ("-1",)},
    "agentrl-replay": {"--limit": ("0", "x")},
    "agentrl-view": {"--port": ("-1", "99999"), "--episodes": ("-1",)},
    "agentrl-bench": {"--repeats": ("0", "x")},
    "agentrl-sandbox": {
        "--seconds": ("0", "-1", "nan"),
        "--memory_mb": ("0", "x"),
        "--port": ("65536",),
        "--send_timeout": ("0", "inf"),
    },
    "agentrl-tools": {"--calls": ("0", "x"), "--seconds": ("0", "inf"), "--characters": ("0",)},
    "agentrl-tpu": {"--slices": ("0", "x"), "--restarts": ("-1",)},
    "agentrl-gke": {"--nodes": ("0", "x"), "--chips": ("0",)},
    "agentrl-slurm": {"--nodes": ("0", "x"), "--gpus": ("0",)},
}
# Whole lines: missing and damaged files, unknown names, flags that contradict each other.
LINES = {
    "agentrl-train": (
        "",
        "--config={empty}/none.py",
        "--config={text}",
        "--config={empty}",
        f"{WORDLE}:huge",
        f"{WORDLE} --config.phases.none.steps=1",
        f"{WORDLE} --config.environment.name=agentrl/None-v0 --run_dir={{empty}}/run",
        f"{WORDLE} --run_dir=/proc/nowhere",
        f"{WORDLE} --run_dir={{text}}",
        f"{WORDLE}:smoke --run_dir={{damaged}}",
        f"{WORDLE} --invariants=maybe --run_dir={{empty}}/run",
        f"{WORDLE} --trackers=none --run_dir={{empty}}/run",
        f"{WORDLE} --profile_steps=x --run_dir={{empty}}/run",
        f"{WORDLE} --profile_steps=9-3 --run_dir={{empty}}/run",
        f"{WORDLE} --fresh --run_dir={{foreign}}",
    ),
    "agentrl-sweep": (
        "",
        WORDLE,
        f"{WORDLE} --out={{empty}}/out --config.seed=1",
        f"{WORDLE} --out={{empty}}/out --grid=phases",
        f"{WORDLE} --out={{empty}}/out --grid=seed=1,2",
        f"{WORDLE} --out={{empty}}/out --grid=nothing=1,2 --print_only",
        f"{WORDLE} --out={{text}} --seeds=0",
    ),
    "agentrl-evaluate": (
        "",
        "--environment=agentrl/None-v0 --player=expert",
        "--environment=agentrl/Wordle-v0",
        "--environment=agentrl/Wordle-v0 --player=nobody",
        f"{EXPERT} --option=words",
        f"{EXPERT} --option=nothing=1",
        f"{EXPERT} --option=words=-1",
        "--run_dir={empty}",
        RUN,
        "--run_dir={text}",
        f"{EXPERT} --checkpoint=oldest",
        f"{EXPERT} --trust=",
    ),
    "agentrl-play": ("", "--environment=agentrl/None-v0", "--run_dir={damaged} --watch=policy"),
    "agentrl-data": (
        "",
        "--task=wordle",
        "--task=none --out={empty}/data",
        "--task=wordle --environment=agentrl/Wordle-v0 --out={empty}/data",
        "--check={empty}/none.jsonl",
        "--check={text}",
        "--check={binary}",
        "--check={empty}",
        "--source={damaged} --export={empty}/out.jsonl",
        "--source={text}",
        "--source={text} --export={empty}/out.docx",
        "--source={damaged} --export={empty}/out.parquet --table=none",
        "--task=wordle --out={text}",
    ),
    "agentrl-serve": (
        "",
        "--run_dir={empty}",
        "--model={empty}",
        "--model={text}",
        f"{RUN} --model={{empty}}",
        "--model={empty} --dtype=float3",
        f"{RUN} --api_key_variable=NO_SUCH_VARIABLE",
    ),
    "agentrl-describe": (
        "",
        "--preset=none",
        f"{PRESET} --model={{empty}}",
        "--model={empty}",
        f"{PRESET} --platform=abacus",
        f"{PRESET} --compute_dtype=float3",
        f"{PRESET} --param_dtype=x",
    ),
    "agentrl-plan": (
        "",
        "--topology=none --sizes=layers=1",
        "--topology=v5e:4x4",
        "--topology=v5e:0x4 --sizes=layers=1",
        f"{SIZES},none=1",
        "--topology=v5e:4x4 --sizes=layers=-1",
        f"{SIZES} --quantize=nf4",
        f"{SIZES} --compute_dtype=float3",
    ),
    "agentrl-replay": ("", "--run_dir={empty}", "--run_dir={text}"),
    "agentrl-view": (
        "",
        "{empty}/none",
        "{empty}",
        "{text}",
        "{damaged} --export=/proc/none.html",
        "{damaged} --host=256.1.1.1",
    ),
    "agentrl-bench": ("", "nothing", "agentic --rival=none", "latency --nonsense"),
    "agentrl-sandbox": (
        "--minimum=none",
        "--modules=no_such_module",
        "--host=256.1.1.1",
        "--api_key_variable=NO_SUCH_VARIABLE",
    ),
    "agentrl-tools": (
        "",
        "--protocol=agentgym",
        "--protocol=agentgym --environment=agentrl/None-v0",
        "--protocol=verltool --tool=calculator --host=256.1.1.1",
        "--protocol=verltool --tool=calculator --stdio",
        "--tool=none",
        "--tool=os:getcwd",
        "--tool=python --minimum=none",
    ),
    "agentrl-tpu": ("", "fly", "up", "up --name=a", f"{TPU} --slices=2", f"{TPU} --wheel={{text}}"),
    "agentrl-gke": ("", "fly", "print", "print --name=a", f"{GKE} --tpu=t --gpu=g"),
    "agentrl-slurm": ("", "fly", "submit", "submit --name=a --process_per=rack", "stop --name=a"),
}


def command_lines() -> Iterator[tuple[str, str]]:
    """(script, its line)"""
    for script, (_, valid) in COMMANDS.items():
        yield script, f"{valid} {UNKNOWN_FLAG}"
        for flag, values in NUMBERS.get(script, {}).items():
            for value in values:
                yield script, f"{valid} {flag}={value}"
        for line in LINES.get(script, ()):
            yield script, line


def attack(battery: Battery) -> None:
    names = {
        name: str(battery.folder / name)
        for name in ("empty", "text", "binary", "damaged", "foreign")
    }
    make_files({name: Path(path) for name, path in names.items()})

    def check(script: str, line: str) -> tuple[bool, str]:
        module = f"agentrl_jax.launch.{COMMANDS[script][0]}"
        words = [word.format(**names) for word in line.split()]
        try:
            result = run_forked(["-m", module, *words], process_environment(1), ROOT, timeout=60)
        except subprocess.TimeoutExpired:
            return False, "it ran for 60 s"
        errors = result.stderr.strip()
        sentences = [x for x in errors.splitlines() if x.startswith("error: ")]
        ok = result.returncode == 2 and len(sentences) == 1 and "Traceback" not in errors
        text = sentences[0] if ok else errors[-300:] or "nothing on stderr"
        return ok, f"status {result.returncode}: {text}"

    for script, line in command_lines():
        name, expected = f"{script} {line}".strip(), "status 2 and one sentence"
        battery.attack(name, expected, lambda script=script, line=line: check(script, line))


def make_files(paths: dict[str, Path]) -> None:
    paths["empty"].mkdir()
    paths["text"].write_text("not what it should be\n")
    paths["binary"].write_bytes(bytes(range(256)) * 4)
    paths["foreign"].mkdir()
    (paths["foreign"] / "thesis.tex").write_text("years of work")
    paths["damaged"].mkdir()
    (paths["damaged"] / "config.json").write_text(json.dumps({"config": None})[:-3])
    (paths["damaged"] / "metrics.jsonl").write_text('{"step": 1, "lo')

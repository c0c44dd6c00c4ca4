"""Replaces agentrl-train in tests of sweeps.

python fake_training.py --config=... --config.seed=3 --run_dir=FOLDER

Seed n wins n tenths of its games, and a tenth more where --config.phases.rl.steps is given; step n
of 4 wins n tenths. Seed 7 fails. Seed 9 waits for SIGTERM.
"""

import json
import signal
import sys
import time
from pathlib import Path

arguments = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
seed, run_dir = int(arguments["config.seed"]), Path(arguments["run_dir"])
run_dir.mkdir(parents=True, exist_ok=True)
with open(run_dir / "began", "a") as file:
    file.write(f"{time.monotonic()}\n")


def stop_gracefully(*_: object) -> None:
    with open(run_dir / "told", "a") as file:
        file.write("stop\n")
    time.sleep(0.2)
    sys.exit(130)


if seed == 9:
    signal.signal(signal.SIGTERM, stop_gracefully)
    (run_dir / "waiting").touch()
    time.sleep(60)
if seed == 7:
    print(*(f"line {n}" for n in range(9)), "error: the seventh seed is unlucky", sep="\n")
    sys.exit(2)
time.sleep(0.2)
rate = (seed + ("config.phases.rl.steps" in arguments)) / 10
phases = {name: {"fields": {"label": label}} for name, label in (("sft", "SFT"), ("rl", "GRPO"))}
config = {"format_version": 3, "fields": {"phases": {"dict": phases}}}
(run_dir / "config.json").write_text(json.dumps(config))
lines = [
    {"phase": "sft", "step": 0, "loss": 5.0},
    *(
        {"phase": "rl", "step": n, "loss": float(n + seed), "rollout/success": n / 10}
        for n in range(4)
    ),
]
(run_dir / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
(run_dir / "ended").write_text(f"{time.monotonic()}")
table = [
    {"name": "SFT", "mean_return": -9.0, "win_rate": 0.0},
    {"name": "GRPO", "mean_return": -float(seed), "win_rate": rate},
    {"name": "expert", "mean_return": 99.0, "win_rate": 1.0},
]
(run_dir / "summary.json").write_text(
    json.dumps({"table": table, "seconds": {"setup": 1.5, "rl": 2.0}})
)

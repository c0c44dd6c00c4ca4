#!/usr/bin/env python3
"""Fake cloud programs: as gcloud, kubectl, sbatch, srun or python3, it logs its calls and carries
them out in a folder.

$CLOUD holds calls.jsonl; machines/NAME with the machine's state as gcloud prints it;
workers/NAME-w-0 and so on, the workers' home folders; secrets/NAME; answers/PROGRAM, with the error
of a program's next calls, one on each line; train.sh, the script that replaces a training run.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CLOUD_DIR = Path(os.environ.get("CLOUD", ""))
NUM_WORKERS = int(os.environ.get("CLOUD_WORKERS", "2"))
PROGRAMS = ("gcloud", "kubectl", "sbatch", "srun", "scancel", "scontrol", "python3")


def install(folder: Path) -> str:
    """A PATH on which these programs come first."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" {name} "$@"\n'
        )
        (programs / name).chmod(0o755)
    (programs / "hostname").write_text('#!/bin/sh\necho "$HOST"\n')
    (programs / "hostname").chmod(0o755)
    return os.pathsep.join([str(programs), "/usr/bin", "/bin"])


def worker_homes(name: str) -> list[Path]:
    return sorted((CLOUD_DIR / "workers").glob(f"{name}-w-*"))


def exit_with_error(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr)
    sys.exit(code)


def flag_value(arguments: list[str], name: str) -> str:
    return next((a.partition("=")[2] for a in arguments if a.startswith(f"--{name}=")), "")


def gcloud(arguments: list[str]) -> None:
    if arguments[0] == "secrets":
        print((CLOUD_DIR / "secrets" / flag_value(arguments, "secret")).read_text(), end="")
        return
    kind, verb, name = arguments[2], arguments[3], arguments[4]
    machine = CLOUD_DIR / "machines" / name
    if verb == "describe":
        if not machine.exists():
            exit_with_error(
                f"ERROR: (gcloud.compute.tpus.{kind}.describe) NOT_FOUND: Resource '{name}' "
                "was not found"
            )
        print(machine.read_text().strip())
    elif verb == "create":
        machine.write_text("ACTIVE" if kind == "queued-resources" else "READY")
        count = int(flag_value(arguments, "node-count") or 1)
        for node in [name] if count == 1 else [f"{name}-{i}" for i in range(count)]:
            for i in range(NUM_WORKERS):
                (CLOUD_DIR / "workers" / f"{node}-w-{i}").mkdir(parents=True)
    elif verb == "delete":
        machine.unlink()
        for home in worker_homes(name) + worker_homes(f"{name}-*"):
            shutil.rmtree(home)
    elif verb == "scp":
        *files, to = [a for a in arguments[4:] if not a.startswith("--")]
        node, _, folder = to.partition(":")
        for home in worker_homes(node):
            for file in files:
                shutil.copy(file, home / folder)
    elif verb == "ssh":
        if not worker_homes(name):
            exit_with_error("ssh: connect to host 10.0.0.1 port 22: Connection timed out", 255)
        which = flag_value(arguments, "worker")
        some = worker_homes(name) if which == "all" else [worker_homes(name)[int(which)]]
        codes = [run_on_worker(home, flag_value(arguments, "command")) for home in some]
        sys.exit(max(codes))


def run_on_worker(home: Path, command: str) -> int:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CLOUD": str(CLOUD_DIR),
        "HOST": home.name,
    }
    return subprocess.run(["bash", "-c", command], cwd=home, env=environment).returncode


def python3(arguments: list[str]) -> None:
    """Acts as a worker's python and as that of its virtual environment."""
    if arguments[0] == "-c":
        sys.exit((CLOUD_DIR / "old python").exists())
    if "venv" in arguments:
        program = Path("venv/bin/python")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text('#!/bin/sh\nexec python3 "$@"\n')
        program.chmod(0o755)
    if "agentrl_jax.launch.train" in arguments:
        os.execv("/bin/bash", ["bash", str(CLOUD_DIR / "train.sh"), *arguments])


def main(program: str, arguments: list[str]) -> None:
    standard_input = sys.stdin.read() if program in ("kubectl", "sbatch") else ""
    with (CLOUD_DIR / "calls.jsonl").open("a") as file:
        file.write(
            json.dumps(
                {
                    "program": program,
                    "arguments": arguments,
                    "stdin": standard_input,
                    "host": os.environ.get("HOST", ""),
                }
            )
            + "\n"
        )
    answers = CLOUD_DIR / "answers" / program
    if answers.exists() and (lines := answers.read_text().splitlines()):
        answers.write_text("".join(f"{line}\n" for line in lines[1:]))
        if lines[0]:
            exit_with_error(lines[0])
    if program == "gcloud":
        gcloud(arguments)
    elif program == "python3":
        python3(arguments)
    elif program == "sbatch":
        print("Submitted batch job 42")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

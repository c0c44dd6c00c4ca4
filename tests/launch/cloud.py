#!/usr/bin/env python3
"""A small cloud for tests: as gcloud, kubectl, sbatch, srun or python3, it notes what it was told and does it in a folder.

$CLOUD holds calls.jsonl; machines/NAME with what gcloud calls its state; workers/NAME-w-0 and so on, the homes of their workers;
secrets/NAME; answers/PROGRAM, what a program is to say before it fails, once for each line; train.sh, what a training run does.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CLOUD = Path(os.environ.get("CLOUD", ""))
WORKERS = int(os.environ.get("CLOUD_WORKERS", "2"))
PROGRAMS = ("gcloud", "kubectl", "sbatch", "srun", "scancel", "scontrol", "python3")


def install(folder: Path) -> str:
    """A PATH on which these programs come first."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" {name} "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "hostname").write_text('#!/bin/sh\necho "$HOST"\n')
    (programs / "hostname").chmod(0o755)
    return os.pathsep.join([str(programs), "/usr/bin", "/bin"])


def homes(name: str) -> list[Path]:
    return sorted((CLOUD / "workers").glob(f"{name}-w-*"))


def fail(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr)
    sys.exit(code)


def flag(arguments: list[str], name: str) -> str:
    return next((a.partition("=")[2] for a in arguments if a.startswith(f"--{name}=")), "")


def gcloud(arguments: list[str]) -> None:
    if arguments[0] == "secrets":
        print((CLOUD / "secrets" / flag(arguments, "secret")).read_text(), end="")
        return
    kind, verb, name = arguments[2], arguments[3], arguments[4]
    machine = CLOUD / "machines" / name
    if verb == "describe":
        if not machine.exists():
            fail(f"ERROR: (gcloud.compute.tpus.{kind}.describe) NOT_FOUND: Resource '{name}' was not found")
        print(machine.read_text().strip())
    elif verb == "create":
        machine.write_text("ACTIVE" if kind == "queued-resources" else "READY")
        count = int(flag(arguments, "node-count") or 1)
        for node in [name] if count == 1 else [f"{name}-{i}" for i in range(count)]:
            for i in range(WORKERS):
                (CLOUD / "workers" / f"{node}-w-{i}").mkdir(parents=True)
    elif verb == "delete":
        machine.unlink()
        for home in homes(name) + homes(f"{name}-*"):
            shutil.rmtree(home)
    elif verb == "scp":
        *files, to = [a for a in arguments[4:] if not a.startswith("--")]
        node, _, folder = to.partition(":")
        for home in homes(node):
            for file in files:
                shutil.copy(file, home / folder)
    elif verb == "ssh":
        if not homes(name):
            fail("ssh: connect to host 10.0.0.1 port 22: Connection timed out", 255)
        which = flag(arguments, "worker")
        some = homes(name) if which == "all" else [homes(name)[int(which)]]
        codes = [on_worker(home, flag(arguments, "command")) for home in some]
        sys.exit(max(codes))


def on_worker(home: Path, command: str) -> int:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CLOUD": str(CLOUD), "HOST": home.name}
    return subprocess.run(["bash", "-c", command], cwd=home, env=environment).returncode


def python3(arguments: list[str]) -> None:
    """The python of a worker, and that of its virtual environment."""
    if arguments[0] == "-c":
        sys.exit((CLOUD / "old python").exists())
    if "venv" in arguments:
        program = Path("venv/bin/python")
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text('#!/bin/sh\nexec python3 "$@"\n')
        program.chmod(0o755)
    if "agentrl_jax.launch.train" in arguments:
        os.execv("/bin/bash", ["bash", str(CLOUD / "train.sh"), *arguments])


def main(program: str, arguments: list[str]) -> None:
    told = sys.stdin.read() if program in ("kubectl", "sbatch") else ""
    with (CLOUD / "calls.jsonl").open("a") as file:
        file.write(json.dumps({"program": program, "arguments": arguments, "stdin": told, "host": os.environ.get("HOST", "")}) + "\n")
    answers = CLOUD / "answers" / program
    if answers.exists() and (lines := answers.read_text().splitlines()):
        answers.write_text("".join(f"{line}\n" for line in lines[1:]))
        if lines[0]:
            fail(lines[0])
    if program == "gcloud":
        gcloud(arguments)
    elif program == "python3":
        python3(arguments)
    elif program == "sbatch":
        print("Submitted batch job 42")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""Calls of external programs: printed before they are made, correct for odd strings, and without
secrets.
"""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.launching import TOKEN, FakeCloud, words

from agentrl_jax.errors import UserError
from agentrl_jax.launch.external_tool import ExternalTool, ExternalToolError, shell_command


@settings(max_examples=30, deadline=None)
@given(
    arguments=st.lists(words, max_size=4),
    stdin=st.lists(words, max_size=3).map(lambda lines: "".join(f"{line}\n" for line in lines)),
)
def test_the_printed_command_is_what_a_shell_would_run(arguments: list[str], stdin: str):
    command_line = shell_command(["/usr/bin/printf", "%s\\0", *arguments, "end"], "")
    received = (
        subprocess.run(["bash", "-c", command_line], capture_output=True)
        .stdout.decode()
        .split("\0")
    )
    assert received == [*arguments, "end", ""]
    command_line = shell_command(["cat", "-"], stdin)
    assert (
        subprocess.run(
            ["bash", "-c", command_line], capture_output=True, stdin=subprocess.DEVNULL
        ).stdout.decode()
        == stdin
    )


def test_a_dry_run_prints_the_call_and_makes_none(
    cloud: FakeCloud, capsys: pytest.CaptureFixture[str]
):
    assert ExternalTool("kubectl", dry_run=True)("apply", "a b", stdin="x\nEND\n") == ""
    assert (
        capsys.readouterr().out == "kubectl apply 'a b' <<'END_'\nx\nEND\nEND_\n"
        and cloud.calls() == []
    )


def test_the_error_of_a_failing_program_is_reported(cloud: FakeCloud):
    cloud.set_failures("kubectl", "error: you must be logged in")
    with pytest.raises(
        ExternalToolError, match="kubectl ended with exit code 1: error: you must be logged in"
    ):
        ExternalTool("kubectl", dry_run=False)("get", "pods")


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"kubectl cannot be run .* install it"):
        ExternalTool("kubectl", dry_run=False)("get", "pods")


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_value_of_a_secret_is_never_part_of_a_call(
    cloud: FakeCloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dry_run: bool,
):
    monkeypatch.setenv("WANDB_API_KEY", TOKEN)
    for arguments, stdin in ((["apply", f"--x={TOKEN}"], ""), (["apply"], f"a: {TOKEN}\n")):
        with pytest.raises(UserError, match="the value of WANDB_API_KEY would be seen") as caught:
            ExternalTool("kubectl", dry_run)(*arguments, stdin=stdin)
        assert TOKEN not in str(caught.value)
    assert cloud.calls() == [] and TOKEN not in "".join(capsys.readouterr())


def test_secrets_are_masked_in_a_programs_error(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    cloud.set_failures("kubectl", f"error: {TOKEN} is refused")
    with pytest.raises(ExternalToolError, match="error: <HF_TOKEN> is refused") as caught:
        ExternalTool("kubectl", dry_run=False)("get")
    assert TOKEN not in caught.value.output

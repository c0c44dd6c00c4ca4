"""Calls of other programs: shown as they are made, safe against odd strings, and silent about secrets."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launching import Cloud

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import Tool, ToolFailed, in_shell

TOKEN = "0123456789abcdef-very-secret"
words = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["a b", "'", '"', "$(touch /tmp/x)", "`id`", "a\nb", "-rf", "--", "END", "*", "\\", "~", "!", "#", "\r\n", "é\u2028"]
)


@settings(max_examples=30, deadline=None)
@given(arguments=st.lists(words, max_size=4), stdin=st.lists(words, max_size=3).map(lambda lines: "".join(f"{line}\n" for line in lines)))
def test_what_is_shown_is_what_a_shell_would_run(arguments: list[str], stdin: str):
    shown = in_shell(["/usr/bin/printf", "%s\\0", *arguments, "end"], "")
    told = subprocess.run(["bash", "-c", shown], capture_output=True).stdout.decode().split("\0")
    assert told == [*arguments, "end", ""]
    shown = in_shell(["cat", "-"], stdin)
    assert subprocess.run(["bash", "-c", shown], capture_output=True, stdin=subprocess.DEVNULL).stdout.decode() == stdin


def test_a_dry_run_prints_the_call_and_makes_none(cloud: Cloud, capsys: pytest.CaptureFixture[str]):
    assert Tool("kubectl", dry_run=True)("apply", "a b", stdin="x\nEND\n") == ""
    assert capsys.readouterr().out == "kubectl apply 'a b' <<'END_'\nx\nEND\nEND_\n" and cloud.calls() == []


def test_a_program_that_fails_is_heard(cloud: Cloud):
    cloud.answer("kubectl", "error: you must be logged in")
    with pytest.raises(ToolFailed, match="kubectl ended with exit code 1: error: you must be logged in"):
        Tool("kubectl", dry_run=False)("get", "pods")


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"kubectl cannot be run .* install it"):
        Tool("kubectl", dry_run=False)("get", "pods")


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_value_of_a_secret_never_gets_into_a_call(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dry_run: bool
):
    monkeypatch.setenv("WANDB_API_KEY", TOKEN)
    for arguments, stdin in ((["apply", f"--x={TOKEN}"], ""), (["apply"], f"a: {TOKEN}\n")):
        with pytest.raises(UserError, match="the value of WANDB_API_KEY would be seen") as caught:
            Tool("kubectl", dry_run)(*arguments, stdin=stdin)
        assert TOKEN not in str(caught.value)
    assert cloud.calls() == [] and TOKEN not in "".join(capsys.readouterr())


def test_what_a_program_says_of_a_secret_is_not_said_again(cloud: Cloud, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    cloud.answer("kubectl", f"error: {TOKEN} is refused")
    with pytest.raises(ToolFailed, match="error: <HF_TOKEN> is refused") as caught:
        Tool("kubectl", dry_run=False)("get")
    assert TOKEN not in caught.value.output

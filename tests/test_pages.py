"""The pages of docs/: links lead to files, names exist, code blocks run."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import agentrl_jax

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(?:#[^)]*)?\)")
BLOCK = re.compile(r"(<!-- fragment -->\n)?^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def defined_names(path: Path) -> set[str]:
    """Functions and classes of a module, and `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (ast.FunctionDef, ast.AsyncFunctionDef)
            names |= {f"{node.name}.{x.name}" for x in node.body if isinstance(x, inner)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path):
    targets = [target for _, target in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_one_step_links_to_the_functions_that_it_names():
    page = ROOT / "docs" / "one_step.md"
    text = page.read_text()
    stops = re.findall(r"^(\d+)\. ", text, re.MULTILINE)
    assert [int(number) for number in stops] == list(range(1, len(stops) + 1)) and 10 < len(
        stops
    ) <= 20
    links = [(name, target) for name, target in LINK.findall(text) if target.endswith(".py")]
    assert len(links) >= len(stops)
    for name, target in links:
        assert name.strip("`") in defined_names(page.parent / target), (name, target)


def test_all_public_names_exist():
    for name in agentrl_jax.__all__:
        assert getattr(agentrl_jax, name).__module__.startswith("agentrl_jax"), name
    assert set(agentrl_jax.__all__) <= set(dir(agentrl_jax))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        agentrl_jax.nothing  # noqa: B018


BLOCKS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, (mark, code) in enumerate(BLOCK.findall(page.read_text()))
    if not mark and page.name != "README.md"  # tests/test_readme.py runs these
]


@pytest.mark.parametrize("code", BLOCKS)
def test_code_blocks_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With the public names and a small `config` defined; blocks that need more are marked as
    fragments.
    """
    from agentrl_jax.configs import wordle_grpo

    monkeypatch.chdir(tmp_path)
    names = {name: getattr(agentrl_jax, name) for name in agentrl_jax.__all__}
    exec(code, names | {"config": wordle_grpo.get_config("smoke")})


SHELL_BLOCK = re.compile(
    r"(<!-- fragment -->\n)?^```bash[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL
)
PROGRAMS = {
    x.name: x.value.partition(":")[0]
    for x in entry_points(group="console_scripts")
    if x.name.startswith("agentrl-")
}


def page_commands() -> dict[str, list[tuple[str, list[str]]]]:
    """The commands of all pages by program, each with its page; what needs more is marked a
    fragment.
    """
    commands = defaultdict(list)
    for page in PAGES:
        for mark, block in SHELL_BLOCK.findall(page.read_text()):
            if mark:
                continue
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if not words:
                    continue
                program = words[0].removeprefix(".venv/bin/")
                commands[program].append((page.name, [program, *words[1:]]))
                if "--" in words:  # a launcher's; what follows are flags of the training
                    config = [x for x in words if x.startswith("--config=")]
                    flags = words[words.index("--") + 1 :]
                    commands["agentrl-train"].append(
                        (page.name, ["agentrl-train", *config, *flags])
                    )
    return commands


COMMANDS = page_commands()


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted(COMMANDS.keys() & PROGRAMS.keys()))
def test_commands_of_the_pages_are_accepted(program: str):
    script = str(ROOT / "tests" / "support" / "parse_commands.py")
    lines = [words for _, words in COMMANDS[program]]
    done = subprocess.run(
        [sys.executable, script, PROGRAMS[program]],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    errors = json.loads(done.stdout.splitlines()[-1])
    assert [(x, error) for x, error in zip(COMMANDS[program], errors, strict=True) if error] == []


def test_other_commands_of_the_pages_name_what_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, words in COMMANDS["make"]:
        assert set(words[1:2]) <= targets, (page, words)
    for page, words in COMMANDS["python"]:
        assert words[1] == "-m" or (ROOT / words[1]).exists(), (page, words)
    unknown = {x for x in COMMANDS if x.startswith("agentrl-")} - PROGRAMS.keys()
    assert unknown == set()

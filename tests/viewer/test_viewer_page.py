"""The built page belongs to its sources, and an exported one holds its data as data."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from support.viewer_runs import write_hostile_run, write_run

from agentrl_jax.errors import UserError
from agentrl_jax.launch.view import run_dirs_as_flags
from agentrl_jax.viewer.export import export_page
from agentrl_jax.viewer.page import page, page_with_data, script_json
from agentrl_jax.viewer.run_view import RunView

SOURCES = Path(__file__).parents[2] / "viewer"
CONFIGURATION = (
    *("index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts"),
)


def sources_digest() -> str:
    """As vite.config.ts computes it."""
    inner = [p.relative_to(SOURCES).as_posix() for p in (SOURCES / "src").rglob("*") if p.is_file()]
    digest = hashlib.sha256()
    for name in sorted((*CONFIGURATION, *inner)):
        digest.update(f"{name}\0".encode() + (SOURCES / name).read_bytes() + b"\0")
    return digest.hexdigest()


def test_the_page_was_built_from_its_sources():
    stored = re.search(r'<meta name="sources" content="(\w+)">', page())
    assert stored and stored.group(1) == sources_digest(), "run `make viewer`"


def elements(text: str, name: str) -> list[str]:
    return re.findall(rf"<{name}(?: type=\"module\")?>(.*?)</{name}>", text, re.DOTALL)


def test_the_policy_names_the_script_and_the_style():
    for name in ("script", "style"):
        (content,) = elements(page(), name)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in page()


def test_the_page_loads_nothing_and_is_small():
    text = page()
    names = re.findall(r"https?://[^\s\"'`)]+", text)
    assert set(names) <= {  # names of XML, and of a licence
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1998/Math/MathML",
        "http://www.w3.org/1999/xhtml",
    }
    assert len(text.encode()) < 300_000
    assert not re.search(r"innerHTML|dangerouslySetInnerHTML=|eval\(|new Function", own_sources())


def own_sources() -> str:
    return "".join(p.read_text() for p in (SOURCES / "src").glob("*.ts*"))


def test_no_registry_is_named_in_the_lock_file():
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    assert not any("resolved" in package for package in lock["packages"].values())


@pytest.mark.parametrize(
    "text", ["</script><script>", "<!--", "\u2028\u2029", "&lt;", "]]>", "\ud800", "null"]
)
def test_data_in_a_page_are_data(text: str):
    document = page_with_data({"text": text})
    assert document.count("</script>") == page().count("</script>")
    start = document.index('id="data">') + len('id="data">')
    inner = document[start : document.index("</script>", start)]
    assert inner.isascii() and not re.search("[<>&]", inner)
    assert json.loads(inner) == {"text": text} and inner == script_json({"text": text})


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path):
    path = tmp_path / "none" / "page.html"
    with pytest.raises(UserError, match=r"cannot write .*page.html .*name another file"):
        export_page([], path, episodes=1)


def test_an_exported_page_has_the_last_episodes_of_each_run(tmp_path: Path):
    runs = [
        RunView(write_run(tmp_path / "run", steps=3, groups=1, group_size=2)),
        RunView(write_hostile_run(tmp_path / "hostile")),
    ]
    for run in runs:
        run.refresh()
    path = tmp_path / "page.html"
    export_page(runs, path, episodes=3)
    inner = path.read_text().split('id="data">')[1].split("</script>")[0]
    first, hostile = json.loads(inner)["runs"]
    assert [row["step"] for row in first["rows"]] == [2, 2, 1]
    assert list(first["episodes"]) == [row["id"] for row in first["rows"]]
    assert first["timelines"].keys() == {"rl/2", "rl/1"} and first["metrics"]["rl"]
    assert first["episodes"]["0-000000/4"] == json.loads(json.dumps(runs[0].episode("0-000000/4")))
    assert len(hostile["rows"]) == 3


def test_words_that_are_no_flags_are_run_folders():
    assert run_dirs_as_flags(["agentrl-view", "runs/a", "--port=1", "b"]) == [
        *("agentrl-view", "--run_dir=runs/a", "--port=1", "--run_dir=b")
    ]

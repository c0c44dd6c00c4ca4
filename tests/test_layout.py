"""The plan of the house: real folders behind links, who may import whom, and what a wheel carries."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "agentrl_jax"
PARTS = ("models", "algorithms", "envs", "configs", "launch")
MAY_IMPORT = {
    "core": {"core"},
    "models": {"core", "models"},
    "algorithms": {"core", "algorithms"},
    "envs": {"core", "envs"},
    "configs": {"core", "models", "algorithms", "envs", "configs"},
    "launch": {"core", *PARTS},
}
BANNED = {"utils", "common", "helpers", "base", "misc"}


def python_files(*folders: str) -> Iterator[Path]:
    """Relative to the repository; links are not followed."""
    for folder in folders:
        for at, _, names in os.walk(ROOT / folder):
            yield from ((Path(at) / name).relative_to(ROOT) for name in sorted(names) if name.endswith(".py"))


def dotted(path: Path) -> str:
    """models/rope.py -> agentrl_jax.models.rope"""
    parts = path.with_suffix("").parts
    return ".".join([*([] if parts[0] == PACKAGE else [PACKAGE]), *(part for part in parts if part != "__init__")])


MODULES = {dotted(path): ROOT / path for path in python_files(PACKAGE, *PARTS)}


def part_of(name: str) -> str:
    second = name.split(".")[1:2]
    return second[0] if second and second[0] in PARTS else "core"


def imported(source: str, name: str, is_package: bool) -> set[str]:
    """What a module imports of this package, as dotted names; relative imports resolved, those in functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = name.split(".")[: len(name.split(".")) - node.level + is_package]
                base = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {module for module in found if module.split(".")[0] in (PACKAGE, *PARTS)}


def offences(source: str, name: str, is_package: bool = False) -> set[str]:
    """The imports of a module that its part may not make; bare names (`import models`) are never right."""
    allowed = MAY_IMPORT[part_of(name)]
    return {module for module in imported(source, name, is_package) if module.split(".")[0] != PACKAGE or part_of(module) not in allowed}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_a_real_folder_behind_a_relative_link(part: str):
    link = ROOT / PACKAGE / part
    assert (ROOT / part).is_dir() and not (ROOT / part).is_symlink()
    assert link.is_symlink() and os.readlink(link) == f"../{part}"
    assert link.resolve() == ROOT / part


@pytest.mark.parametrize(("name", "path"), MODULES.items(), ids=MODULES)
def test_a_module_imports_only_what_its_part_may(name: str, path: Path):
    assert offences(path.read_text(encoding="utf-8"), name, path.name == "__init__.py") == set()


@pytest.mark.parametrize(
    ("name", "source", "wrong"),
    [
        ("agentrl_jax.learner", "import agentrl_jax.models.decoder", {"agentrl_jax.models.decoder"}),
        ("agentrl_jax.learner", "from agentrl_jax import algorithms, batch", {"agentrl_jax.algorithms"}),
        ("agentrl_jax.learner", "def f():\n    from .envs import lmrl", {"agentrl_jax.envs.lmrl"}),
        ("agentrl_jax.learner", "from . import batch, launch", {"agentrl_jax.launch"}),
        ("agentrl_jax.algorithms.grpo", "from ..models import decoder", {"agentrl_jax.models.decoder"}),
        ("agentrl_jax.algorithms.grpo", "from . import losses\nfrom ..learner import Learner", set()),
        ("agentrl_jax.models.rope", "if TYPE_CHECKING:\n    import agentrl_jax.algorithms", {"agentrl_jax.algorithms"}),
        ("agentrl_jax.envs.lmrl.maze", "from ...models import decoder", {"agentrl_jax.models.decoder"}),
        ("agentrl_jax.envs.lmrl.maze", "from .wordle import Wordle\nfrom ..rewindable import Rewindable", set()),
        ("agentrl_jax.configs.one", "import agentrl_jax.launch.train, agentrl_jax.models.decoder", {"agentrl_jax.launch.train"}),
        ("agentrl_jax.launch.train", "from agentrl_jax.configs import one", set()),
        ("agentrl_jax.launch.train", "import models\nfrom envs.lmrl import maze", {"models", "envs.lmrl.maze"}),
        ("agentrl_jax.learner", "import jax\nfrom jax.envs import models", set()),
    ],
)
def test_the_rule_sees_every_form_of_import(name: str, source: str, wrong: set[str]):
    assert offences(source, name) == wrong


def test_a_package_resolves_its_own_relative_imports():
    assert offences("from .lmrl import maze\nfrom .. import models", "agentrl_jax.envs", is_package=True) == {"agentrl_jax.models"}


@pytest.mark.parametrize(
    "name",
    [
        PACKAGE,
        f"{PACKAGE}.envs",
        f"{PACKAGE}.worker",
        f"{PACKAGE}.actors",
        f"{PACKAGE}.environment",
        f"{PACKAGE}.messages",
        f"{PACKAGE}.generation",
    ],
)
def test_a_worker_never_loads_jax(name: str):
    heavy = "{'jax', 'jaxlib', 'flax', 'optax', 'transformers', 'torch', 'orbax'}"
    code = f"import sys, {name}; print(sorted({heavy} & {{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ray_is_not_imported_before_it_is_asked_for():
    code = "import sys, agentrl_jax.run, agentrl_jax.actors\nassert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_making_and_playing_a_world_does_not_load_jax_either():
    code = (
        "import sys, gymnasium, agentrl_jax.envs\n"
        "from agentrl_jax.environment import make\n"
        "from agentrl_jax.errors import UserError\n"
        "for name in [n for n in gymnasium.registry if n.startswith('agentrl/')]:\n"
        "    try: env = make(name)\n"
        "    except UserError: continue  # its extra is not installed\n"
        "    env.reset(seed=0); env.step('x')\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


EVERYTHING = [*python_files(PACKAGE, *PARTS, "tests", "examples", "benchmarks"), Path("setup.py")]


def test_no_module_has_a_name_that_says_nothing():
    assert len(EVERYTHING) > 50
    assert [path for path in EVERYTHING if BANNED & set(path.with_suffix("").parts)] == []


def test_every_module_says_what_it_is_about():
    assert [path for path in EVERYTHING if not ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))] == []


def test_a_launcher_only_starts():
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in python_files("launch")}
    launchers = {path: len(source.splitlines()) for path, source in sources.items() if "\ndef main(" in source}
    assert len(launchers) > 7 and {path: n for path, n in launchers.items() if n > 60} == {}


def packaged() -> set[str]:
    """Where every tracked file of the package must be found in a wheel."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [name for name in listed if not (ROOT / name).is_symlink()]
    core = {name for name in files if name.startswith(f"{PACKAGE}/")}
    return core | {f"{PACKAGE}/{name}" for name in files if name.split("/")[0] in PARTS}


def in_the_tree(name: str) -> str:
    """A path in the wheel as a path in the repository: agentrl_jax/models/rope.py -> models/rope.py."""
    inner = name.removeprefix(f"{PACKAGE}/")
    return inner if inner.split("/")[0] in PARTS else name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="only a checkout knows which files are tracked")
def test_a_wheel_and_an_sdist_hold_every_tracked_module_and_data_file(tmp_path: Path):
    copy = tmp_path / "copy"
    copy.mkdir()
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    archive = subprocess.run(["tar", "-c", "--null", "-T", "-"], cwd=ROOT, input=listing, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(copy)], input=archive, check=True)
    # setuptools writes wheels itself since 70.1; before that it needs the wheel package.
    newer = tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1)
    alone = ["--no-isolation"] if newer or find_spec("wheel") else []
    command = [sys.executable, "-m", "build", *alone, "--outdir", str(tmp_path / "dist"), str(copy)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,), (sdist,) = (tmp_path / "dist").glob("*.whl"), (tmp_path / "dist").glob("*.tar.gz")
    expected = packaged()
    assert {f"{PACKAGE}/py.typed", f"{PACKAGE}/envs/lmrl/words.txt", f"{PACKAGE}/configs/wordle_grpo.py"} <= expected
    with zipfile.ZipFile(wheel) as file:
        held = [name for name in file.namelist() if ".dist-info/" not in name]
    assert sorted(held) == sorted(expected)
    with tarfile.open(sdist) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    assert {in_the_tree(name) for name in expected} - packed == set()

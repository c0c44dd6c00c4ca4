"""The layout of the repository: real folders behind links, which folder may import which, and what
a wheel contains.
"""

import ast
import os
import re
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
# The allowed imports: a folder imports itself, the root of the package, and these folders.
CORE = {
    "root": (),
    "storage": (),
    "distributed": (),
    "sandbox": (),
    "workers": ("sandbox",),
    "corpus": (),
    "compiler": ("distributed",),
    "reporting": ("storage",),
    "viewer": ("storage",),
    "learner": ("distributed", "storage"),
    "inference": ("distributed", "learner"),
    "rollout": ("distributed", "storage", "inference", "workers"),
    "capture": ("workers", "rollout"),
    "tool_servers": ("workers", "sandbox", "capture"),
    "formats": ("storage",),
    "training": (
        "compiler", "distributed", "storage", "formats", "reporting", "learner", "inference",
        "workers", "rollout", "sandbox",
    ),
}  # fmt: skip
ALGORITHMS = {
    "advantages": ("learner",),
    "experience": ("advantages", "distributed", "storage", "rollout"),
    "losses": ("advantages", "experience", "learner"),
    "policy_gradient": (
        "advantages", "experience", "losses", "distributed", "learner", "rollout", "training",
    ),
    "pairwise": (
        "experience", "losses", "policy_gradient", "distributed", "inference", "learner", "rollout",
        "storage", "training",
    ),
    "archer": (
        "advantages", "experience", "policy_gradient", "distributed", "learner", "rollout",
        "training",
    ),
    "offline": (
        "advantages", "losses", "policy_gradient", "distributed", "inference", "learner", "rollout",
        "training",
    ),
    "strategies": (
        "advantages", "experience", "offline", "storage", "inference", "learner", "workers",
        "rollout", "training",
    ),
    "contexts": ("experience", "storage", "workers", "rollout"),
    "methods": (
        "advantages", "experience", "losses", "policy_gradient", "pairwise", "archer", "offline",
        "strategies", "distributed", "learner", "rollout", "training",
    ),
}  # fmt: skip
CORE_FOLDERS = tuple(CORE)
ALLOWED = {
    **{folder: {"root", *imported} for folder, imported in CORE.items()},
    **{
        f"algorithms/{folder}": {
            "root",
            *(f"algorithms/{target}" if target in ALGORITHMS else target for target in imported),
        }
        for folder, imported in ALGORITHMS.items()
    },
    "models": {"root", "distributed"},
    "envs": {"root", "storage", "rollout", "sandbox", "tool_servers", "training"},
    "public": {*CORE_FOLDERS, "models"},  # agentrl_jax/__init__.py
    "configs": {
        *CORE_FOLDERS,
        "models",
        "envs",
        *(f"algorithms/{folder}" for folder in ALGORITHMS),
    },
}
ALLOWED["launch"] = {*ALLOWED["configs"], "configs"}
ALLOWED["algorithms"] = {"root"}
# (a module of envs/, another environment family that it imports) -> why; the modules directly in
# envs/ may be imported by every family.
FAMILY_EXCEPTIONS: dict[tuple[str, str], str] = {}
MAX_LINES = 300
# A longer module -> why.
LENGTH_EXCEPTIONS = {
    "agentrl_jax.rollout.runtime": "one facade of short methods; more parts would only delegate",
}
BANNED = {"utils", "common", "helpers", "base", "misc"}


def python_files(*folders: str) -> Iterator[Path]:
    """Paths relative to the repository; links are not followed."""
    for folder in folders:
        for at, _, names in os.walk(ROOT / folder):
            yield from (
                (Path(at) / name).relative_to(ROOT)
                for name in sorted(names)
                if name.endswith(".py")
            )


def dotted(path: Path) -> str:
    """models/rope.py -> agentrl_jax.models.rope"""
    parts = path.with_suffix("").parts
    return ".".join(
        [
            *([] if parts[0] == PACKAGE else [PACKAGE]),
            *(part for part in parts if part != "__init__"),
        ]
    )


MODULES = {dotted(path): ROOT / path for path in python_files(PACKAGE, *PARTS)}


def folder_of(name: str) -> str:
    """agentrl_jax.learner.packing -> learner; agentrl_jax.engine -> root;
    agentrl_jax.algorithms.losses.kl -> algorithms/losses; agentrl_jax.envs.lmrl.maze -> envs;
    agentrl_jax -> public
    """
    parts = name.split(".")[1:]
    if not parts:
        return "public"
    if parts[:1] == ["algorithms"] and len(parts) > 1:
        return "/".join(parts[:2])
    return parts[0] if parts and parts[0] in {*CORE, *PARTS} else "root"


def imported_names(source: str, name: str, is_package: bool) -> set[str]:
    """The dotted names that a module imports of this package, relative imports resolved; those in
    functions and under TYPE_CHECKING too.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = name.split(".")[: len(name.split(".")) - node.level + is_package]
                base = ".".join([*above, *filter(None, [node.module])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return {module for module in names if module.split(".")[0] in (PACKAGE, *PARTS)}


def forbidden_imports(folder: str, imports: set[str]) -> set[str]:
    """The imports that are not allowed; bare names (`import models`) never are."""
    return {
        module
        for module in imports
        if module.split(".")[0] != PACKAGE or folder_of(module) not in {folder, *ALLOWED[folder]}
    }


def imports_of(name: str) -> set[str]:
    path = MODULES[name]
    return imported_names(path.read_text(encoding="utf-8"), name, path.name == "__init__.py")


def module_of(name: str) -> str | None:
    """agentrl_jax.engine.Engine -> agentrl_jax.engine"""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


def nodes_in_cycles(graph: dict[str, set[str]]) -> set[str]:
    """The nodes of a graph that are on a cycle, or from which some path leads to one."""
    while leaves := {node for node, targets in graph.items() if not targets & set(graph)}:
        graph = {node: targets for node, targets in graph.items() if node not in leaves}
    return set(graph)


def test_allowed_imports_have_no_cycles():
    assert (
        nodes_in_cycles({folder: imported - {folder} for folder, imported in ALLOWED.items()})
        == set()
    )
    assert nodes_in_cycles({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": set()}) == {"a", "b"}


def test_every_allowed_import_is_used():
    """Where the parts meet (configs, launch, the public names) any allowed import may be used."""
    used: dict[str, set[str]] = {folder: {"root"} for folder in ALLOWED}
    for name in MODULES:
        used[folder_of(name)] |= {folder_of(module) for module in imports_of(name)}
    folders = ALLOWED.keys() - {"configs", "launch", "public"}
    assert {folder: ALLOWED[folder] - used[folder] for folder in folders} == {
        folder: set() for folder in folders
    }


def test_no_module_imports_itself_in_a_cycle():
    graph = {}
    for name in MODULES:
        targets = map(module_of, imports_of(name))
        # A package's own module is loaded before those inside it, whichever module names it.
        graph[name] = {target for target in targets if target and not name.startswith(f"{target}.")}
    assert nodes_in_cycles({name: targets - {name} for name, targets in graph.items()}) == set()


def test_only_one_module_uses_the_internals_of_jax():
    sources = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    users = [name for name, source in sources.items() if "jax._src" in source]
    assert users == [f"{PACKAGE}.distributed.jax_internals"]  # for which there is no public API


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_a_real_folder_behind_a_relative_link(part: str):
    link = ROOT / PACKAGE / part
    assert (ROOT / part).is_dir() and not (ROOT / part).is_symlink()
    assert link.is_symlink() and os.readlink(link) == f"../{part}"
    assert link.resolve() == ROOT / part


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_is_allowed(folder: str):
    names = [name for name in MODULES if folder_of(name) == folder]
    assert names
    wrong = {name: forbidden_imports(folder, imports_of(name)) for name in names}
    assert {name: imports for name, imports in wrong.items() if imports} == {}


@pytest.mark.parametrize(
    ("name", "source", "wrong"),
    [
        ("learner.learner", "import agentrl_jax.models.decoder", {"agentrl_jax.models.decoder"}),
        (
            "learner.learner",
            "from agentrl_jax import algorithms, engine",
            {"agentrl_jax.algorithms"},
        ),
        ("learner.learner", "def f():\n    from ..envs import lmrl", {"agentrl_jax.envs.lmrl"}),
        ("learner.learner", "from .. import engine, launch", {"agentrl_jax.launch"}),
        ("learner.packing", "from ..rollout import runtime", {"agentrl_jax.rollout.runtime"}),
        (
            "rollout.runtime",
            "from ..learner.packing import pack",
            {"agentrl_jax.learner.packing.pack"},
        ),
        ("engine", "import agentrl_jax.storage.files", {"agentrl_jax.storage.files"}),
        (
            "algorithms.losses.kl",
            "from ..policy_gradient import scoring\nfrom ..advantages import gae",
            {"agentrl_jax.algorithms.policy_gradient.scoring"},
        ),
        ("algorithms.archer.algorithm", "from ...learner import learner\nfrom . import x", set()),
        (
            "models.rope",
            "if TYPE_CHECKING:\n    import agentrl_jax.algorithms",
            {"agentrl_jax.algorithms"},
        ),
        ("envs.lmrl.maze", "from ...models import decoder", {"agentrl_jax.models.decoder"}),
        ("envs.lmrl.maze", "from .wordle import Wordle\nfrom ..forkable import Forkable", set()),
        ("configs.small", "import agentrl_jax.launch.train", {"agentrl_jax.launch.train"}),
        ("launch.train", "from agentrl_jax.configs import small", set()),
        ("launch.train", "import models\nfrom envs.lmrl import maze", {"models", "envs.lmrl.maze"}),
        ("learner.learner", "import jax\nfrom jax.envs import models", set()),
    ],
)
def test_the_rule_sees_every_form_of_import(name: str, source: str, wrong: set[str]):
    name = f"{PACKAGE}.{name}"
    assert (
        forbidden_imports(folder_of(name), imported_names(source, name, is_package=False)) == wrong
    )


def test_a_package_resolves_its_own_relative_imports():
    imports = imported_names(
        "from .lmrl import maze\nfrom .. import models", f"{PACKAGE}.envs", True
    )
    assert forbidden_imports("envs", imports) == {"agentrl_jax.models"}


def family_of(name: str) -> str:
    """agentrl_jax.envs.lmrl.maze -> lmrl; "" for the modules directly in envs/ and elsewhere."""
    parts = name.split(".")[1:3]
    is_family = len(parts) == 2 and parts[0] == "envs" and (ROOT / "envs" / parts[1]).is_dir()
    return parts[1] if is_family else ""


def other_families(name: str, imports: set[str]) -> set[str]:
    return {family_of(module) for module in imports} - {"", family_of(name)}


def test_no_environment_family_imports_another():
    names = [name for name in MODULES if folder_of(name) == "envs"]
    assert len({family_of(name) for name in names}) > 5
    pairs = {(name, other) for name in names for other in other_families(name, imports_of(name))}
    assert pairs == set(FAMILY_EXCEPTIONS) and all(FAMILY_EXCEPTIONS.values())


@pytest.mark.parametrize(
    ("name", "source", "others"),
    [
        ("envs.lmrl.maze", "from ..games import kuhn", {"games"}),
        ("envs.lmrl.chess.chess", "import agentrl_jax.envs.shop.pages", {"shop"}),
        ("envs.lmrl.maze", "def f():\n    from agentrl_jax.envs import shop", {"shop"}),
        ("envs.lmrl.maze", "from .wordle import Wordle\nfrom ..options import checked_int", set()),
        ("envs.lmrl.maze", "from agentrl_jax.envs import options", set()),
        ("envs.options", "from .lmrl import maze", {"lmrl"}),
    ],
)
def test_the_rule_of_families_sees_every_form_of_import(name: str, source: str, others: set[str]):
    name = f"{PACKAGE}.{name}"
    assert other_families(name, imported_names(source, name, is_package=False)) == others


@pytest.mark.parametrize(
    "name",
    [
        PACKAGE,
        f"{PACKAGE}.envs",
        f"{PACKAGE}.viewer.server",
        f"{PACKAGE}.workers.server",
        f"{PACKAGE}.workers.ray_pool",
        f"{PACKAGE}.environment",
        f"{PACKAGE}.messages",
        f"{PACKAGE}.rollout.scripted_dataset",
    ],
)
def test_a_worker_and_the_viewer_never_load_jax(name: str):
    heavy = "{'jax', 'jaxlib', 'flax', 'optax', 'transformers', 'torch', 'orbax'}"
    code = f"import sys, {name}; print(sorted({heavy} & {{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_ray_is_not_imported_before_it_is_used():
    code = (
        "import sys, agentrl_jax.training.run, agentrl_jax.workers.ray_pool\nassert 'ray' "
        "not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_making_and_playing_an_environment_does_not_load_jax_either():
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


def test_no_module_has_a_meaningless_name():
    assert len(EVERYTHING) > 50
    assert [path for path in EVERYTHING if BANNED & set(path.with_suffix("").parts)] == []


def test_modules_are_short():
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    assert {name for name, count in lines.items() if count > MAX_LINES} == set(LENGTH_EXCEPTIONS)


def test_every_module_has_a_docstring():
    assert [
        path
        for path in EVERYTHING
        if not ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    ] == []


def test_no_test_file_imports_another():
    imported = {
        path: re.findall(r"^\s*(?:from|import) (?:\w+\.)*(test_\w+)", text, re.MULTILINE)
        for path in python_files("tests")
        if (text := (ROOT / path).read_text(encoding="utf-8"))
    }
    assert {path: names for path, names in imported.items() if names} == {}


def test_launchers_are_short():
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in python_files("launch")}
    launchers = {
        path: len(source.splitlines())
        for path, source in sources.items()
        if "\ndef main(" in source
    }
    assert len(launchers) > 7 and {path: n for path, n in launchers.items() if n > 85} == {}


def packaged() -> set[str]:
    """The path in a wheel of every tracked file of the package."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = [name for name in listed if not (ROOT / name).is_symlink()]
    core = {name for name in files if name.startswith(f"{PACKAGE}/")}
    return core | {f"{PACKAGE}/{name}" for name in files if name.split("/")[0] in PARTS}


def in_the_tree(name: str) -> str:
    """A path in the wheel as a path in the repository: agentrl_jax/models/rope.py ->
    models/rope.py.
    """
    inner = name.removeprefix(f"{PACKAGE}/")
    return inner if inner.split("/")[0] in PARTS else name


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(),
    reason="only a checkout knows which files are tracked",
)
def test_a_wheel_and_an_sdist_contain_every_tracked_module_and_data_file(tmp_path: Path):
    copy = tmp_path / "copy"
    copy.mkdir()
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    archive = subprocess.run(
        ["tar", "-c", "--null", "-T", "-"], cwd=ROOT, input=listing, capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(copy)], input=archive, check=True)
    # setuptools writes wheels itself since 70.1; before that it needs the wheel package.
    newer = tuple(map(int, version("setuptools").split(".")[:2])) >= (70, 1)
    alone = ["--no-isolation"] if newer or find_spec("wheel") else []
    command = [sys.executable, "-m", "build", *alone, "--outdir", str(tmp_path / "dist"), str(copy)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,), (sdist,) = (tmp_path / "dist").glob("*.whl"), (tmp_path / "dist").glob("*.tar.gz")
    expected = packaged()
    assert {
        f"{PACKAGE}/py.typed",
        f"{PACKAGE}/envs/lmrl/words.txt",
        f"{PACKAGE}/configs/wordle_grpo.py",
    } <= expected
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if ".dist-info/" not in name]
    assert sorted(names) == sorted(expected)
    with tarfile.open(sdist) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    assert {in_the_tree(name) for name in expected} - packed == set()

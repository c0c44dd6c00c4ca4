"""The table of published systems names methods, configs, pieces and environments that exist, and
leaves none out.
"""

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agentrl_jax.algorithms import methods
from agentrl_jax.envs import ENVIRONMENTS
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.systems.system import System
from agentrl_jax.launch.benchmarks.systems.table import (
    COLUMNS,
    REGISTRIES,
    SYSTEMS,
    counts_sentence,
    systems_table,
)
from agentrl_jax.training.config import Experiment

ROOT = Path(__file__).parents[3]
RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "systems.md"
# Methods that systems are built of, and configs that show those or a part of the library.
BASE_METHODS = {
    "bi_level_ppo", "cispo", "dapo", "dr_grpo", "gigpo", "grpo", "gspo", "ppo",
    "reinforce_plus_plus", "reinforce_plus_plus_with_baseline", "rloo", "turn_ppo", "vapo",
}  # fmt: skip
OTHER_CONFIGS = {
    "base_model.py", "price_list_base.py", "reading_model.py", "vision_base.py", "vision_watch.py",
    "vision_turn.py", "vision_furnish.py",
    "alfworld_gigpo.py", "arithmetic_verifier.py", "arithmetic_dr_grpo.py",
    "capture_arithmetic.py", "chain_gigpo.py", "chat_file_sft.py", "count_squares_grpo.py",
    "dialogue_reward_model.py", "keydoor_gigpo.py", "mcp_tools_grpo.py", "search_methods.py",
    "tools_grpo.py", "wordle_dr_grpo.py", "wordle_pretrained.py",
}  # fmt: skip
BENCHMARKS = {"MINT", "VerlTool"}  # published without a method of their own
WITH_CONFIGS = [system for system in SYSTEMS if system.configs]


def get_config(name: str) -> Callable[..., Experiment]:
    return importlib.import_module(f"agentrl_jax.configs.{name.removesuffix('.py')}").get_config


def test_there_are_48_systems_of_different_names_and_papers():
    assert len(SYSTEMS) == 48
    assert len({system.name for system in SYSTEMS}) == len({x.paper for x in SYSTEMS}) == 48
    assert all(re.fullmatch(r"2\d{3}\.\d{5}", system.paper) for system in SYSTEMS)


def test_every_published_method_belongs_to_a_system_or_is_a_base():
    listed = {name for system in SYSTEMS for name in system.methods}
    assert listed | BASE_METHODS == set(methods.__all__) and not listed & BASE_METHODS


def test_every_config_belongs_to_a_system_or_shows_something_else():
    paths = (ROOT / "configs").glob("*.py")
    existing = {path.name for path in paths if "def get_config" in path.read_text()}
    listed = {config.partition(":")[0] for system in SYSTEMS for config in system.configs}
    assert listed | OTHER_CONFIGS == existing and not listed & OTHER_CONFIGS


@pytest.mark.parametrize("system", WITH_CONFIGS, ids=lambda system: system.name)
def test_a_systems_configs_train_on_its_environments(system: System):
    assert system.methods or system.name in BENCHMARKS
    assert system.kind != "none" and system.absent
    for config in system.configs:
        name, _, variant = config.partition(":")
        experiment = get_config(name)(variant) if variant else get_config(name)()
        environment = experiment.environment.name.rpartition("/")[2].removesuffix("-v0")
        assert experiment.phases and environment in system.environments
    modules = {name: entry for name, (entry, _) in ENVIRONMENTS.items()}
    families = {modules[f"agentrl/{name}-v0"].split(".")[2] for name in system.environments}
    if system.kind == "own kind":
        assert families - {"diagnostic"}
    else:
        assert families <= {"diagnostic", "dialogue"}


def test_a_system_without_configs_is_absent():
    for system in SYSTEMS:
        is_absent = system.state == "absent"
        assert is_absent == (not system.configs), system.name
        has_no_method = is_absent or system.name in BENCHMARKS
        assert has_no_method == (not system.methods), system.name
        assert not is_absent or not (system.comparisons or system.cells or system.environments)


def test_pieces_are_names_of_the_code():
    sources = [
        path.read_text()
        for part in ("agentrl_jax", "algorithms", "envs", "models")
        for path in (ROOT / part).rglob("*.py")
    ]
    defined = {
        name for source in sources for name in re.findall(r"^(?:class|def) (\w+)", source, re.M)
    }
    pieces = {name for system in SYSTEMS for name in re.findall("`(.*?)`", system.pieces)}
    assert len(pieces) > 40 and pieces - defined == set()


def test_every_comparison_of_a_systems_method_is_its_figure():
    listed = [name for system in SYSTEMS for name in system.comparisons]
    of_bases = {"dr_grpo", "critic_warmup", "gigpo", "gigpo_alfworld"}
    assert len(listed) == len(set(listed))
    names = [row.name for comparisons in REGISTRIES.values() for row in comparisons]
    assert sorted(set(listed) | of_bases) == sorted(names)  # no name is in two registries


def test_the_tables_of_the_page_are_those_of_the_code():
    assert doc_tables.read_section(PAGE, "counts") == counts_sentence()
    assert doc_tables.read_section(PAGE, "systems") == systems_table(RESULTS)


def test_a_row_shows_figures_and_what_was_not_measured(tmp_path: Path):
    header, _, *rows = systems_table(RESULTS).splitlines()
    assert header == f"| {' | '.join(COLUMNS)} |" and len(rows) == len(SYSTEMS)
    cells = {row.split(" (")[0].removeprefix("| "): row.split(" | ") for row in rows}
    search = "search_supo missing; search_supo_double missing"
    assert cells["SUPO"][5] == f"supo +0.953 ± 0.07, by construction; {search}"
    assert (
        cells["WebAgent-R1"][5] == "not measured"
        and cells["MINT"][5] == "mint_feedback -0.0233 ± 0.0289, not shown"
        and cells["RecoWorld"][5] == "-"
    )
    assert cells["LMRL-Gym"][5].startswith("maze_fo-ilql return -")
    empty = systems_table(tmp_path).splitlines()[2:]
    assert any(f"| supo missing; {search} |" in row for row in empty)

"""The README's examples run, and its tree is that of the repository."""

import re
from pathlib import Path

import gymnasium
import jax
import numpy as np
from gymnasium.utils.env_checker import check_env

from agentrl_jax import models
from agentrl_jax.models.decoder import DecoderConfig

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def code_with(word: str) -> str:
    """The README's block of Python that contains a word."""
    (code,) = (
        code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if word in code
    )
    return code


def test_the_models_of_the_readme_are_loaded_and_saved(tmp_path: Path) -> None:
    policy = DecoderConfig(layers=1, width=16, hidden=16, heads=8, kv_heads=8, head_size=4).build(
        16
    )
    models.save(tmp_path / "Qwen3-0.6B", policy, policy.init(jax.random.key(0)))
    names: dict = {}
    exec(code_with("models.load").replace("path/to", str(tmp_path)), names)
    assert names["policy"].config.compute_dtype == "bfloat16"
    assert names["params"]["embedding"].addressable_shards[0].data.shape == (16, 2)
    jax.tree.map(
        np.testing.assert_array_equal, models.load(tmp_path / "trained")[1], names["params"]
    )


def test_the_environment_of_the_readme_is_a_gymnasium_environment() -> None:
    names: dict = {}
    exec(code_with("GuessTheNumber"), names)
    gymnasium.register("readme/Guess-v0", names["GuessTheNumber"])
    env = gymnasium.make("readme/Guess-v0")
    check_env(env.unwrapped)
    env.reset(seed=0)
    policy = names["GuessTheNumber"].scripted_policies["expert"]
    observation, reward, terminated, _, info = env.unwrapped.step(policy(env.unwrapped, None))
    assert (observation[0].text, reward, terminated, info["success"]) == ("yes\n", 0.0, True, True)
    env.close()


def test_the_tree_of_the_readme_names_exactly_the_folders() -> None:
    tree = README.split("## What is where")[1].split("```")[1]
    words = set(re.findall(r"\b([a-z_0-9]+)/", tree))

    def folders(path: str) -> set[str]:
        children = (ROOT / path).iterdir()
        return {p.name for p in children if (p / "__init__.py").exists() and not p.is_symlink()}

    parts = {"models", "algorithms", "envs", "configs", "launch", "examples", "benchmarks", "tests"}
    named = {"agentrl_jax", "docs", *parts} | folders("agentrl_jax") | folders("algorithms")
    named |= folders("envs") - {"programs"} | {"hf", "benchmarks", "studies", "rivals", "results"}
    named |= {"tpu", "gke", "slurm", "colab"}
    assert named == words | {"docs"}

"""`splits`: what the episodes of a test split share with those of training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.launch import dataclass_flags
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.workers.pool import importable_env_name


@dataclass
class SplitOverlap:
    """Counts equal openings and equal scripted episodes of two splits."""

    environment: str = option("agentrl_jax.envs:agentrl/TextCraft-v0", "A Gymnasium id.")
    train_option: tuple[str, ...] = option((), "name=value of training; may be repeated.")
    test_option: tuple[str, ...] = option((), "name=value of the test split; may be repeated.")
    player: str = option("expert", "The scripted policy whose episodes are compared; empty: none.")
    train_episodes: int = option(200, "Episodes of training, with the seeds 0, 1, ...", 1)
    test_episodes: int = option(50, "Episodes of the test split, likewise.", 1)
    option: tuple[str, ...] = option((), "name=value of both splits; may be repeated.")

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Play, print the table and report.

        Raises:
            UserError: the environment cannot be made or lacks the scripted policy.
        """
        both = dataclass_flags.parse_literals(self.option)
        train = self._episodes({**both, **dataclass_flags.parse_literals(self.train_option)}, True)
        test = self._episodes({**both, **dataclass_flags.parse_literals(self.test_option)}, False)
        rows = {
            kind: {
                "train": len(train[kind]),
                "train_distinct": len(set(train[kind])),
                "test": len(test[kind]),
                "test_distinct": len(set(test[kind])),
                "test_in_train": len(set(test[kind]) & set(train[kind])),
            }
            for kind in train
        }
        print("| | train | distinct | test | distinct | distinct test also in train |")
        print("|---|---|---|---|---|---|")
        for kind, row in rows.items():
            print(f"| {kind} | {' | '.join(map(str, row.values()))} |")
        return {"bench": "splits", "environment": self.environment, **rows}

    def _episodes(self, options: Mapping[str, Any], is_train: bool) -> dict[str, list[str]]:
        """The openings of a split, and what its scripted policy does after them."""
        env = make(importable_env_name(self.environment), options)
        if self.player and self.player not in env.scripted_policies:
            listed = ", ".join(env.scripted_policies)
            raise UserError(f"--player must be one of {listed}, not {self.player!r}")
        openings, episodes = list[str](), list[str]()
        for seed in range(self.train_episodes if is_train else self.test_episodes):
            opening, _ = env.reset(seed=seed)
            openings.append(json.dumps([message.to_dict() for message in opening]))
            if not self.player:
                continue
            rng, is_over = np.random.default_rng(seed), False
            while not is_over:
                _, _, terminated, truncated, _ = env.step(
                    env.scripted_policies[self.player](env, rng)
                )
                is_over = terminated or truncated
            episodes.append(env.render())
        env.close()
        return {"openings": openings, **({"episodes": episodes} if self.player else {})}

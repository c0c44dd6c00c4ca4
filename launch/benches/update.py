"""`update`: one GRPO step on a batch that was sampled before: credit, packing, gradient and optimizer, no rollout."""

import dataclasses
import time
from typing import Any, ClassVar

import jax
import numpy as np

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.packing import Sharing
from agentrl_jax.compilations import compilations
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benches.rivals import Against, Found, compared, interleaved
from agentrl_jax.launch.benches.shapes import Serving, Shape, surroundings
from agentrl_jax.launch.options import option
from agentrl_jax.messages import assistant, user
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.runtime import Runtime
from agentrl_jax.sharding import MeshConfig, make_mesh
from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn
from agentrl_jax.workers import InProcess


@dataclasses.dataclass
class Update(Against, Serving, Shape):
    """The update of TRL's trainer or Tunix's, on as many prompts and completions of the same lengths; tokens are the real ones."""

    batch: int = option(32, "Completions of a step.", 1)
    group: int = option(8, "Completions of a prompt.", 2)
    prompt: int = option(24, "Tokens of a prompt.", 2)
    new: int = option(128, "Tokens of the longest completion.", 1)
    shortest: int = option(0, "Tokens of the shortest, all lengths between equally likely; 0: all are of the longest's.", 0)
    shared: int = option(1, "1: a group's prompt is computed once; 0: rows are packed, each with its prompt.", 0)
    microbatch: int = option(4, "Packed rows, or bins of a shared prompt, of a microbatch.", 1)
    scripts: ClassVar = {"tunix": ("tunix_update.py",), "trl": ("trl_grpo.py", "--mode=train")}

    def run(self) -> dict[str, Any]:
        """Measure and report. Raises UserError where the batch is no whole number of groups."""
        if self.batch % self.group or (self.rival == "trl" and self.shortest):
            raise UserError("a batch is a whole number of groups, and TRL's completions are all of one length: leave --shortest out")
        self.config()
        sizes = {"trl": [f"--prompts={self.batch // self.group}"], "tunix": [f"--batch={self.batch}", f"--shortest={self.shortest}"]}
        flags = [f"--{name}={getattr(self, name)}" for name in ("group", "prompt", "new")]
        with self.opened_rival([*self.flags(), *flags, *sizes.get(self.rival, [])]) as rival:
            ours = Ours(self)
            try:
                mine, theirs = interleaved(ours.repeat, rival, self.repeats)
            finally:
                ours.runtime.close()
        return {
            "bench": "update", "sizes": dataclasses.asdict(self), "params": self.params, **compared(mine, theirs),
            "compilations": sum(x["compilations"] for x in mine), "rival_says": rival and rival.ready, **surroundings(),
        }  # fmt: skip


class Ours:
    """A learner, and a new batch each time."""

    def __init__(self, sizes: Update) -> None:
        s = self._sizes = sizes
        policy, params = s.build()
        bins: dict[str, Any] = {"bin_length": s.prompt + s.new}
        if s.shared:
            bins = {"bin_length": s.new + 1, "sharing": Sharing(s.prompt - 1, s.group)}
        mesh = make_mesh(MeshConfig(data=s.devices), jax.devices()[: s.devices])
        self._algorithm = grpo(optimizer=AdamWConfig(1e-5), microbatch=s.microbatch, **bins).build(policy, mesh, 10**6)
        self._state = self._algorithm.init(jax.random.key(1), params)
        self.runtime, self._step = Runtime({}, {}, InProcess()), 0

    def repeat(self) -> Found:
        groups, tokens = make_groups(self._sizes, self._step)
        self._step += 1
        compiled, began = compilations(), time.perf_counter()
        self._state, _ = self._algorithm.step(self._state, groups, self.runtime)
        jax.block_until_ready(self._state.params)
        return {"seconds": time.perf_counter() - began, "sampled_tokens": tokens, "compilations": compilations() - compiled}


def make_groups(sizes: Update, seed: int) -> tuple[list[Group], int]:
    """Groups of one-turn episodes with random tokens and rewards, and how many tokens they have, prompts counted for each."""
    s, rng = sizes, np.random.default_rng(seed)
    groups, tokens = [], 0
    for i in range(s.batch // s.group):
        prompt, members = rng.integers(0, s.vocab, s.prompt, np.int32), []
        for reward in rng.permutation(s.group):
            length = int(rng.integers(s.shortest, s.new + 1)) if s.shortest else s.new
            zeros = np.zeros(length, np.float32)
            call = Call(
                prompt, rng.integers(0, s.vocab, length, np.int32), zeros - np.log(s.vocab), zeros.astype(np.int32), Sampling(budget=s.new),
                "stop",
            )  # fmt: skip
            members.append(Trajectory((user(""),), (Turn((call,), assistant(""), (), float(reward), terminated=True),)))
            tokens += s.prompt + length
        groups.append(Group(str(i), tuple(members)))
    return groups, tokens

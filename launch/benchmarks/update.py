"""`update`: one GRPO step on a given batch: credit, packing, gradient, optimizer; no rollout."""

import dataclasses
import time
from typing import Any, ClassVar

import jax
import numpy as np

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.policy_gradient.microbatches import PromptSharing
from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.bounds import ModelWork, median_or_none, update_report
from agentrl_jax.launch.benchmarks.rivals import (
    Measurement,
    RivalBench,
    compare_measurements,
    run_interleaved,
)
from agentrl_jax.launch.benchmarks.shapes import EngineSetup, ModelShape, run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool


@dataclasses.dataclass
class Update(RivalBench, EngineSetup, ModelShape):
    """Against TRL's or Tunix's trainer on as many prompts and completions of the same lengths.

    Padding does not count as tokens.
    """

    batch: int = option(32, "Completions per step.", 1)
    group: int = option(8, "Completions per prompt.", 2)
    prompt: int = option(24, "Tokens of a prompt.", 2)
    new: int = option(128, "Tokens of the longest completion.", 1)
    shortest: int = option(
        0,
        "Tokens of the shortest completion, lengths are uniform; 0: all are as long as --new.",
        0,
    )
    share_prompt: int = option(
        1, "1: a group's prompt is computed once; 0: rows are packed, each with its prompt.", 0
    )
    microbatch: int = option(4, "Packed rows, or bins of a shared prompt, per microbatch.", 1)
    scripts: ClassVar = {"tunix": ("tunix_update.py",), "trl": ("trl_grpo.py", "--mode=train")}

    def run(self) -> dict[str, Any]:
        """Measure and report. Raises UserError where the batch does not divide into groups."""
        if self.batch % self.group or (self.rival == "trl" and self.shortest):
            raise UserError(
                "a batch is a whole number of groups, and TRL's completions are all of one "
                "length: leave --shortest out"
            )
        self.config()
        sizes = {
            "trl": [f"--prompts={self.batch // self.group}"],
            "tunix": [f"--batch={self.batch}", f"--shortest={self.shortest}"],
        }
        flags = [f"--{name}={getattr(self, name)}" for name in ("group", "prompt", "new")]
        with self.open_rival([*self.flags(), *flags, *sizes.get(self.rival, [])]) as rival:
            runner = UpdateRunner(self)
            try:
                ours, theirs = run_interleaved(runner.repeat, rival, self.repeats)
            finally:
                runner.runtime.close()
        return {
            "bench": "update",
            "sizes": dataclasses.asdict(self),
            "params": self.params,
            **compare_measurements(ours, theirs),
            "bound": runner.bound(ours),
            "compilations": sum(x["compilations"] for x in ours),
            "rival_says": rival and rival.ready_message,
            **run_environment(),
        }


class UpdateRunner:
    """A learner that trains on a new random batch in each repeat."""

    def __init__(self, sizes: Update) -> None:
        s = self._sizes = sizes
        self._policy, params = s.build()
        policy = self._policy
        bins: dict[str, Any] = {"bin_length": s.prompt + s.new}
        if s.share_prompt:
            bins = {"bin_length": s.new + 1, "prompt_sharing": PromptSharing(s.prompt - 1, s.group)}
        mesh = make_mesh(MeshConfig(data=s.devices), jax.devices()[: s.devices])
        self._algorithm = grpo(optimizer=AdamWConfig(1e-5), microbatch=s.microbatch, **bins).build(
            policy, mesh, 10**6
        )
        self._state = self._algorithm.init(jax.random.key(1), params)
        self.runtime, self._step = Runtime({}, {}, InlinePool()), 0

    def bound(self, measurements: list[Measurement]) -> dict[str, float | None]:
        """The medians of the bound of each repeat's lengths, and of the fractions reached."""
        reports = [
            update_report(self._policy, x["flops"], x["seconds"], self._sizes.devices)
            for x in measurements
        ]
        return {name: median_or_none([x[name] for x in reports]) for name in reports[0]}

    def _flops(self, groups: list[Group]) -> float:
        """Of the update of these groups, a shared prompt once per group."""
        s, work = self._sizes, ModelWork.of(self._policy)
        new = [len(x.turns[0].calls[0].action) for group in groups for x in group.trajectories]
        if not s.share_prompt:
            return work.training_flops([s.prompt + n for n in new])
        shared = s.prompt - 1
        prompts = work.training_flops([shared] * len(groups))
        return prompts + work.training_flops([n + 1 for n in new], shared)

    def repeat(self) -> Measurement:
        groups, tokens = make_groups(self._sizes, self._step)
        self._step += 1
        compiled, began = compile_count(), time.perf_counter()
        self._state, _ = self._algorithm.step(self._state, groups, self.runtime)
        jax.block_until_ready(self._state.params)
        return {
            "seconds": time.perf_counter() - began,
            "sampled_tokens": tokens,
            "flops": self._flops(groups),
            "compilations": compile_count() - compiled,
        }


def make_groups(sizes: Update, seed: int) -> tuple[list[Group], int]:
    """Groups of one-turn episodes with random tokens and rewards, and their tokens in all.

    Prompts count once per episode.
    """
    s, rng = sizes, np.random.default_rng(seed)
    groups, tokens = [], 0
    for i in range(s.batch // s.group):
        prompt, members = rng.integers(0, s.vocab, s.prompt, np.int32), []
        for reward in rng.permutation(s.group):
            length = int(rng.integers(s.shortest, s.new + 1)) if s.shortest else s.new
            zeros = np.zeros(length, np.float32)
            call = Call(
                prompt,
                rng.integers(0, s.vocab, length, np.int32),
                zeros - np.log(s.vocab),
                zeros.astype(np.int32),
                Sampling(budget=s.new),
                "stop",
            )
            members.append(
                Trajectory(
                    (user(""),), (Turn((call,), assistant(""), (), float(reward), terminated=True),)
                )
            )
            tokens += s.prompt + length
        groups.append(Group(str(i), tuple(members)))
    return groups, tokens

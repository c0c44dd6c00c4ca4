"""`agentic`: multi-turn rollouts of groups alone, and with the update that follows (end to end)."""

import dataclasses
import time
from typing import Any, ClassVar

import jax

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.algorithms.policy_gradient.microbatches import PromptSharing
from agentrl_jax.compiler.compile_count import compile_count
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.launch.benchmarks import harness
from agentrl_jax.launch.benchmarks.rivals import (
    Measurement,
    RivalBench,
    compare_measurements,
    run_interleaved,
)
from agentrl_jax.launch.benchmarks.shapes import EngineSetup, ModelShape, run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.workers.pool import InlinePool


@dataclasses.dataclass
class Agentic(RivalBench, EngineSetup, ModelShape):
    """Multi-turn GRPO against TRL's tool environments or Tunix's agentic learner.

    Ours uses the turns and lengths that the rival reports.
    """

    prompts: int = option(4, "Environments per step.", 1)
    group: int = option(8, "Episodes of each environment.", 2)
    turns: int = option(4, "Turns of an episode.", 1)
    prompt: int = option(256, "Tokens before the first turn; TRL's depend on its template.", 2)
    new: int = option(19, "Tokens sampled per turn; TRL's depend on its tool format.", 1)
    observation: int = option(21, "Tokens between two turns.", 1)
    microbatch: int = option(
        32, "Rows of a microbatch; their gradients are summed before the one optimizer step.", 1
    )
    share_prompt: int = option(
        1, "1: the update computes a group's prompt once; 0: for each of its rows.", 0
    )
    workers: int = option(0, "Environment processes; 0: this process.", 0)
    scripts: ClassVar = {"tunix": ("tunix_agentic.py",), "trl": ("trl_grpo.py", "--mode=env")}

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        requested = ["prompts", "group", "turns"] + (
            [] if self.rival == "trl" else ["prompt", "new", "observation"]
        )
        self.config()
        with self.open_rival(
            [*self.flags(), *(f"--{name}={getattr(self, name)}" for name in requested)]
        ) as rival:
            trajectories = dataclasses.replace(
                self, **(rival.ready_message["plays"] if rival else {})
            )
            ours = AgenticRunner(trajectories)
            try:
                local, theirs = run_interleaved(ours.repeat, rival, self.repeats)
            finally:
                ours.runtime.close()
        without = {
            "seconds_without_compiling": "seconds",
            "tokens_per_second_without_compiling": "tokens_per_second",
        }
        return {
            "bench": "agentic",
            "sizes": dataclasses.asdict(trajectories),
            "params": self.params,
            **compare_measurements(local, theirs, without if self.rival == "tunix" else None),
            "compilations": sum(x["compilations"] for x in local),
            "rival_says": rival and rival.ready_message,
            **run_environment(),
        }


class AgenticRunner:
    """A runtime and a learner; one repeat is one step of the loop: collect, update, publish."""

    def __init__(self, sizes: Agentic) -> None:
        s, episodes = sizes, sizes.prompts * sizes.group
        policy, params = s.build()
        agent = harness.make_agent(s.new, s.vocab)
        length = harness.episode_length(s.turns, s.prompt, s.new, s.observation)
        mesh = make_mesh(MeshConfig(data=s.devices), jax.devices()[: s.devices])
        # As in TRL: the gradient of all rows, then one optimizer step.
        bins: dict[str, Any] = {"bin_length": length, "microbatch": s.microbatch}
        if s.share_prompt:
            # Without its last token, from which each row predicts its first action.
            prompt = s.prompt - 1
            bins = {
                "bin_length": length - prompt,
                "prompt_sharing": PromptSharing(prompt, s.group),
                "microbatch": max(1, s.microbatch // s.group),
            }
        self._algorithm = grpo(optimizer=AdamWConfig(1e-5), **bins).build(policy, mesh, 10**6)
        self._state = self._algorithm.init(jax.random.key(1), params)
        self._engine = s.engine(policy, params, episodes, length)
        self.runtime = Runtime(
            {"policy": self._engine}, {"policy": agent}, make_relay_workers(s.workers)
        )
        self._sizes, self._step = s, 0

    def repeat(self) -> Measurement:
        s, step, engine, self._step = self._sizes, self._step, self._engine, self._step + 1
        tasks = [
            harness.make_task(s.turns, s.prompt, s.observation, 1000 * step + i, i)
            for i in range(s.prompts)
        ]
        compiled, sampled, prefilled = (
            compile_count(),
            engine.counts["sampled_tokens"],
            harness.prefill_tokens(engine),
        )
        busy, began = harness.busy_seconds(engine), time.perf_counter()
        groups = self.runtime.collect(IndependentEpisodes(s.group), tasks, (0, step))
        collected, busy = time.perf_counter(), harness.busy_seconds(engine) - busy
        self._state, metrics = self._algorithm.step(self._state, groups, self.runtime)
        jax.block_until_ready(self._state.params)
        updated = time.perf_counter()
        self.runtime.publish(self._state.params, step + 1)
        published = time.perf_counter()
        seconds = published - began
        return {
            "seconds": seconds,
            "rollout_seconds": collected - began,
            "update_seconds": updated - collected,
            "publication_seconds": published - updated,
            "device_busy": busy / (collected - began),
            "sampled_tokens": engine.counts["sampled_tokens"] - sampled,
            "prefill_tokens": harness.prefill_tokens(engine) - prefilled,
            "trained_tokens": metrics["tokens"],
            "groups_with_signal": metrics["groups_with_signal"],
            "compilations": compile_count() - compiled,
        }


def make_relay_workers(count: int) -> Any:
    if not count:
        return InlinePool()
    from agentrl_jax.training.builders import make_workers
    from agentrl_jax.training.config import EnvironmentConfig

    return make_workers(EnvironmentConfig(harness.RELAY_ID, workers=count))

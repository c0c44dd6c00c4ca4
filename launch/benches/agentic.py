"""`agentic`: groups of episodes of a fixed number of turns, alone (rollout) and with the update that follows (end to end)."""

import dataclasses
import time
from typing import Any, ClassVar

import jax

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.policy_gradient import Sharing
from agentrl_jax.compilations import compilations
from agentrl_jax.launch.benches import play
from agentrl_jax.launch.benches.rivals import Against, Found, compared, interleaved
from agentrl_jax.launch.benches.shapes import Serving, Shape, surroundings
from agentrl_jax.launch.options import option
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.runtime import Runtime
from agentrl_jax.sharding import MeshConfig, make_mesh
from agentrl_jax.strategies import Independent
from agentrl_jax.workers import InProcess


@dataclasses.dataclass
class Agentic(Against, Serving, Shape):
    """Multi-turn GRPO beside TRL's tool environments or Tunix's agentic learner; ours plays what the rival says it plays."""

    prompts: int = option(4, "Worlds a step.", 1)
    group: int = option(8, "Episodes of each.", 2)
    turns: int = option(4, "Of an episode.", 1)
    prompt: int = option(256, "Tokens before the first turn; TRL's follow from its template.", 2)
    new: int = option(19, "Tokens sampled a turn; TRL's follow from its tool's format.", 1)
    observation: int = option(21, "Tokens between two turns.", 1)
    microbatch: int = option(32, "Rows of a microbatch; their gradients are summed before the one optimizer step.", 1)
    shared: int = option(1, "1: the update computes a group's prompt once; 0: for each of its rows.", 0)
    workers: int = option(0, "Environment processes; 0: this one.", 0)
    scripts: ClassVar = {"tunix": ("tunix_agentic.py",), "trl": ("trl_grpo.py", "--mode=env")}

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        asked = ["prompts", "group", "turns"] + ([] if self.rival == "trl" else ["prompt", "new", "observation"])
        self.config()
        with self.opened_rival([*self.flags(), *(f"--{name}={getattr(self, name)}" for name in asked)]) as rival:
            played = dataclasses.replace(self, **(rival.ready["plays"] if rival else {}))
            ours = Ours(played)
            try:
                mine, theirs = interleaved(ours.repeat, rival, self.repeats)
            finally:
                ours.runtime.close()
        without = {"seconds_without_compiling": "seconds", "tokens_per_second_without_compiling": "tokens_per_second"}
        return {
            "bench": "agentic", "sizes": dataclasses.asdict(played), "params": self.params,
            **compared(mine, theirs, without if self.rival == "tunix" else None),
            "compilations": sum(x["compilations"] for x in mine), "rival_says": rival and rival.ready, **surroundings(),
        }  # fmt: skip


class Ours:
    """A runtime and a learner; one repeat is one step of the loop: collect, update, publish."""

    def __init__(self, sizes: Agentic) -> None:
        s, episodes = sizes, sizes.prompts * sizes.group
        policy, params = s.build()
        agent = play.make_agent(s.new, s.vocab)
        length = play.positions(s.turns, s.prompt, s.new, s.observation)
        mesh = make_mesh(MeshConfig(data=s.devices), jax.devices()[: s.devices])
        # As TRL does it: one gradient over all rows, one optimizer step.
        bins: dict[str, Any] = {"bin_length": length, "microbatch": s.microbatch}
        if s.shared:
            prompt = s.prompt - 1  # but for its last token, which each row has to predict its first action from
            bins = {"bin_length": length - prompt, "sharing": Sharing(prompt, s.group), "microbatch": max(1, s.microbatch // s.group)}
        self._algorithm = grpo(optimizer=AdamWConfig(1e-5), **bins).build(policy, mesh, 10**6)
        self._state = self._algorithm.init(jax.random.key(1), params)
        self._engine = s.engine(policy, params, episodes, length)
        self.runtime = Runtime({"policy": self._engine}, {"policy": agent}, make_workers(s.workers))
        self._sizes, self._step = s, 0

    def repeat(self) -> Found:
        s, step, engine, self._step = self._sizes, self._step, self._engine, self._step + 1
        tasks = [play.make_task(s.turns, s.prompt, s.observation, 1000 * step + i, i) for i in range(s.prompts)]
        compiled, sampled, prefilled = compilations(), engine.counts["sampled_tokens"], play.prefilled(engine)
        busy, began = play.busy(engine), time.perf_counter()
        groups = self.runtime.collect(Independent(s.group), tasks, (0, step))
        collected, busy = time.perf_counter(), play.busy(engine) - busy
        self._state, metrics = self._algorithm.step(self._state, groups, self.runtime)
        jax.block_until_ready(self._state.params)
        updated = time.perf_counter()
        self.runtime.publish(self._state.params, step + 1)
        seconds = time.perf_counter() - began
        return {
            "seconds": seconds, "rollout_seconds": collected - began, "update_seconds": updated - collected,
            "device_busy": busy / (collected - began), "sampled_tokens": engine.counts["sampled_tokens"] - sampled,
            "prefill_tokens": play.prefilled(engine) - prefilled, "trained_tokens": metrics["tokens"],
            "groups_with_signal": metrics["groups_with_signal"], "compilations": compilations() - compiled,
        }  # fmt: skip


def make_workers(count: int) -> Any:
    if not count:
        return InProcess()
    from agentrl_jax.experiment import EnvironmentConfig
    from agentrl_jax.run import make_workers

    return make_workers(EnvironmentConfig(play.RELAY, workers=count))

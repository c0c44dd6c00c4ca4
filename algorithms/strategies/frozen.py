"""`WithFrozen`: rollouts beside an agent that is not trained any more."""

import dataclasses
from dataclasses import dataclass, field

import jax

from agentrl_jax.checkpoint import load_params
from agentrl_jax.experiment import Feed, Rollouts
from agentrl_jax.local_engine import LocalEngine
from agentrl_jax.run import Run


@dataclass
class WithFrozen:
    """Rollouts with one agent more: the policy as it was at the end of an earlier phase, on an engine of its own."""

    rollouts: Rollouts = field(default_factory=Rollouts)
    name: str = "actor"
    phase: str = "sft"
    on_policy: bool = field(default=True, init=False)

    def open(self, run: Run) -> Feed:
        params = load_params(run.run_dir / "checkpoints" / self.phase, jax.eval_shape(run.policy.init, jax.random.key(0)))
        engine = LocalEngine(run.policy, run.experiment.engine, params, text=run.tokenizer.decode)
        run.runtime.add(self.name, dataclasses.replace(run.agent, name=self.name, engine=self.name, trainable=False), engine)
        return self.rollouts.open(run)

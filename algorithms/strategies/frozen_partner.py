"""`WithFrozenAgent`: rollouts with an additional agent that is not trained."""

import dataclasses
from dataclasses import dataclass, field

import jax

from agentrl_jax.inference.engine_pool import make_engine
from agentrl_jax.learner.checkpoint import load_params
from agentrl_jax.training.config import ExperienceIterator, RunContext
from agentrl_jax.training.sources import Rollouts


@dataclass
class WithFrozenAgent:
    """Rollouts with an additional agent: the policy at the end of an earlier phase.

    The agent has an engine of its own.
    """

    phase: str  # whose newest checkpoint it plays with
    rollouts: Rollouts = field(default_factory=Rollouts)
    name: str = "actor"
    on_policy: bool = field(default=True, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        shapes = jax.eval_shape(run.policy.init, jax.random.key(0))
        params = load_params(run.run_dir / "checkpoints" / self.phase, shapes)
        engine = make_engine(
            run.policy, run.experiment.engine, params, detokenize=run.tokenizer.decode
        )
        run.runtime.add_agent(
            self.name,
            dataclasses.replace(run.agent, name=self.name, engine=self.name, trainable=False),
            engine,
        )
        return self.rollouts.open(run)

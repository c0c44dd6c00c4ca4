"""`RewardModel`: the named model that a reward-model phase trained."""

from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
from jaxtyping import Array, Float

from agentrl_jax.algorithms.pairwise.bradley_terry import score_at_end
from agentrl_jax.algorithms.pairwise.reward_model import RewardModelConfig
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig, ValueModel
from agentrl_jax.errors import UserError
from agentrl_jax.inference.batch_scorer import BatchScorer, RowScore
from agentrl_jax.learner.packing import Batch
from agentrl_jax.policy import Params
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.storage import config_json
from agentrl_jax.training.builders import agent_policy_config, load_tokenizer, make_agent
from agentrl_jax.training.model_configs import ModelContext
from agentrl_jax.training.phase_checkpoint import load_model_params


def value_at_end(model: ValueModel) -> RowScore:
    """The value at the last token of each row."""

    def score_rows(params: Params, batch: Batch) -> Float[Array, "B"]:
        (values,), _ = model.values_after_tokens(params, batch, None)
        return score_at_end(values, jnp.sum(jnp.asarray(batch.segment_ids), axis=1))

    return score_rows


@dataclass
class RewardModel:
    """The reward model of a phase's newest checkpoint, in this run or another. It can score."""

    phase: str = "reward"  # whose algorithm is a `RewardModelConfig`
    run_dir: str = ""  # of another run; empty: this run
    rows: int = 32  # texts that are scored at once

    def open(self, name: str, run: ModelContext) -> Model:
        """Raises UserError where there is no such run, or the phase trains no reward model."""
        experiment, tokenizer, folder = run.experiment, run.tokenizer, run.run_dir
        if self.run_dir:
            folder = Path(self.run_dir)
            experiment = config_json.load_config(folder)
            tokenizer = load_tokenizer(folder / "tokenizer")
        phase = experiment.phases.get(self.phase)
        if phase is None or not isinstance(phase.algorithm, RewardModelConfig):
            raise UserError(
                f"config.models.{name}: {self.phase!r} is no phase that trains a reward model; "
                f"there are {', '.join(experiment.phases)}"
            )
        policy = agent_policy_config(experiment, phase.agent).build(len(tokenizer))
        model = CriticConfig(phase.algorithm.head).build_model(policy)

        def load() -> Params:
            mesh = experiment.engine.devices()
            return load_model_params(folder / "checkpoints" / self.phase, model, mesh)

        scorer = BatchScorer(
            value_at_end(model),
            model.axes(),
            load,
            experiment.engine,
            self.rows,
        )
        return Model(make_agent(experiment, tokenizer, run.context, phase.agent), scorer=scorer)

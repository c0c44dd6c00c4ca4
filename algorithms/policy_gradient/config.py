"""The config of a policy-gradient method: its slots, and the shape of its batches."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.advantages.group import AdvantageEstimator
from agentrl_jax.algorithms.advantages.grouping import sequence_of_token
from agentrl_jax.algorithms.advantages.token_masks import TokenMask
from agentrl_jax.algorithms.experience.filters import GroupFilter
from agentrl_jax.algorithms.experience.replay import Replay
from agentrl_jax.algorithms.experience.rewards import RewardTransform
from agentrl_jax.algorithms.experience.schedules import ScalarOrSchedule
from agentrl_jax.algorithms.losses.importance import ImportanceCorrection
from agentrl_jax.algorithms.losses.policy import SurrogateLoss
from agentrl_jax.algorithms.losses.regularizers import Regularizer
from agentrl_jax.algorithms.policy_gradient.answer_probe import AnswerProbe
from agentrl_jax.algorithms.policy_gradient.auxiliary import AuxiliaryObjective
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig
from agentrl_jax.algorithms.policy_gradient.microbatches import PromptSharing
from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError
from agentrl_jax.learner.image_rows import ImageRows
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.sequences import CreditInputs, TokenIndex
from agentrl_jax.policy import Policy


@dataclass
class PolicyGradientSlots:
    """The slots of a policy-gradient method and the shape of its batches; docs/pieces.md lists the
    components for each slot.
    """

    # one number per policy-written token; with a critic, its targets too
    advantage: AdvantageEstimator
    aggregation: Callable[[TokenIndex], np.ndarray]  # the weight of each token in the loss
    surrogate: SurrogateLoss
    # which tokens share a ratio, for sequence-level losses and corrections
    sequence: Callable[[CreditInputs], np.ndarray] = sequence_of_token
    probe: AnswerProbe | None = None  # required by rewards of information gain
    rewards: RewardTransform | None = None
    pre_filter: GroupFilter | None = None  # before replay
    replay: Replay | None = None
    filter: GroupFilter | None = None  # after replay
    mask: TokenMask | None = None
    transforms: tuple[Callable[[CreditInputs, np.ndarray], np.ndarray], ...] = ()
    # between sampler and learner; at the log-probs from before the update if the learner rescores
    mismatch: ImportanceCorrection | None = None
    mismatch_normalize: bool = False  # divide its weights by their mean; requires `rescore`
    regularizers: dict[str, Regularizer] = field(default_factory=dict)  # by name in the metrics
    auxiliaries: tuple[AuxiliaryObjective, ...] = ()
    # of the policy gradient and its regularizers beside the auxiliaries, such as 1 - mu(step)
    policy_weight: ScalarOrSchedule = field(default=1.0, metadata=OMITTED_AT_DEFAULT)
    critic: CriticConfig | None = None
    # compute log-probs under the starting policy; regularizers that need them set it themselves
    reference: bool = False
    # recompute proximal log-probs with the learner; off: ratios are to the sampler's
    rescore: bool = False
    # the step's remaining updates are left out once KL(proximal || policy), the mean over a
    # minibatch's tokens, exceeds it: a trust region around the weights from before the step
    max_kl: float = field(default=float("inf"), metadata=OMITTED_AT_DEFAULT)
    epochs: int = 1  # over the collected batch
    minibatches: int = 1  # optimizer steps per epoch, each on an equal part of the groups
    optimizer: OptimizerConfig = field(default_factory=AdamWConfig)
    # tokens per packed row: at least the longest training sequence, or with prompt sharing the
    # longest after its shared prompt
    bin_length: int = 256
    prompt_sharing: PromptSharing = field(default_factory=PromptSharing)
    microbatch: int = 32  # packed rows, or bins of shared prompts, per gradient computation
    # of a policy that sees; None: episodes with images are refused
    images: ImageRows | None = field(default=None, metadata=OMITTED_AT_DEFAULT)


def check_config(config: PolicyGradientSlots, policy: Policy) -> None:
    """Raises UserError where settings contradict each other or the policy."""
    if min(config.epochs, config.minibatches, config.microbatch) < 1:
        raise UserError("a policy-gradient method needs epochs, minibatches and microbatch >= 1")
    if not config.max_kl > 0:
        raise UserError(f"max_kl bounds a divergence: it is above 0, not {config.max_kl}")
    sharing = config.prompt_sharing
    if sharing.prompt_tokens < 0 or sharing.sequences < 1:
        raise UserError(
            "a shared prompt has at least 0 tokens and is shared by at least 1 sequence, not "
            f"{sharing}"
        )
    if sharing.prompt_tokens and not policy.supports_branches:
        raise UserError(
            f"{type(policy).__name__} does not support rows with branches: leave prompt sharing off"
        )
    if sharing.prompt_tokens and config.images is not None:
        raise UserError("prompts with images are not shared: leave prompt_sharing off")
    if config.mismatch_normalize and not (config.mismatch and config.rescore):
        raise UserError(
            "mismatch_normalize divides the weights of an importance correction by their mean: "
            "set mismatch and rescore too"
        )

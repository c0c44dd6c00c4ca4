"""INSPO (arXiv 2512.01945): GRPO with an evolving population of instructions.

A group is a question and an instruction, which is sampled by the returns under it. Every 8 steps
the lower half is removed; candidates are verified in a few episodes that are not trained on, and
the best of them replace it. N, its temperature and the intervals are not published. The fine-tuning
has no instruction: most of these are a distraction at first, and training determines their worth.
`:reflecting`: the policy itself, far too small for it, is prompted to write them. The evaluation of
the trained policy uses the instruction with the highest returns, that of the fine-tuned one none.

Expected effect: instructions with higher returns are sampled more often. `:base` has none but the
empty one, and is GRPO.

Hardware: 2 CPU cores; time: about 1 minute; score: success .99, SFT .49 (seed 0)

    agentrl-train --config=configs/lookup_inspo.py[:base|:reflecting]
"""

from agentrl_jax.algorithms.contexts.evolved_instruction import (
    EvolvedInstruction,
    InstructionEvolution,
)
from agentrl_jax.algorithms.contexts.instruction_population import InstructionPopulation
from agentrl_jax.algorithms.contexts.instruction_writers import (
    InstructionProposer,
    ListProposer,
    ReflectiveProposer,
)
from agentrl_jax.algorithms.experience.replay import LowRewardBuffer
from agentrl_jax.algorithms.methods.tool_use import inspo
from agentrl_jax.configs.small import LOOKUP, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


def evolving_instruction(proposer: InstructionProposer) -> EvolvedInstruction:
    evolution = InstructionEvolution(
        proposer,
        prune_every=8,
        num_candidates=2,
        proxy_episodes=8,
        failure_buffer=LowRewardBuffer(16, 0.5),
        max_length=40,
    )
    return EvolvedInstruction(
        InstructionPopulation(("", "find", "answer", "nobody"), 0.2), evolution=evolution
    )


def get_config(variant: str = "method") -> Experiment:
    proposals = ListProposer(("find boss", "find pal", "Done.", "boss of pal of"))
    strategy = pick(
        variant,
        "lookup_inspo",
        method=evolving_instruction(proposals),
        base=EvolvedInstruction(InstructionPopulation(("",), 1.0)),
        reflecting=evolving_instruction(ReflectiveProposer(request="?\n", max_characters=100)),
    )
    return small_experiment(
        "lookup-inspo",
        LOOKUP,
        inspo(**training_settings(LOOKUP)),
        Rollouts(16, strategy),
        label="INSPO",
    )

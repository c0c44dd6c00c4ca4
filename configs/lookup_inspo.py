"""INSPO (arXiv 2512.01945): GRPO within groups of a question and an instruction; the instructions are a population that evolves.

Each group's instruction is drawn by what was earned under it. Every 8 steps the lower half goes; candidates are verified in a few
episodes that nobody trains on, and the best of them take the free places. N, its temperature and the intervals are not published.
The fine-tuning knows no instruction: most of these are a distraction at first, and what they are worth is found out. `:reflecting`: the
policy itself, far too small for it, is asked to write them. The evaluation of what it trained plays under the instruction that earned
most, that of the fine-tuning under none.

Expected effect: instructions that earn more are drawn more often. `:base` has none but the empty one, and is GRPO.

agentrl-train --config=configs/lookup_inspo.py[:base|:reflecting]
"""

from agentrl_jax.algorithms.contexts.instructed import Evolution, Instructed
from agentrl_jax.algorithms.contexts.population import Population
from agentrl_jax.algorithms.contexts.proposers import FromList, Proposer, Reflecting
from agentrl_jax.algorithms.experience_replay import LowReward
from agentrl_jax.algorithms.methods.tools import inspo
from agentrl_jax.configs.small import LOOKUP, pick, rates, small
from agentrl_jax.experiment import Experiment, Rollouts


def evolving(proposer: Proposer) -> Instructed:
    evolution = Evolution(proposer, every=8, candidates=2, proxy=8, failures=LowReward(16, 0.5), longest=40)
    return Instructed(Population(("", "find", "answer", "nobody"), 0.2), evolution=evolution)


def get_config(variant: str = "method") -> Experiment:
    proposals = FromList(("find boss", "find pal", "Done.", "boss of pal of"))
    strategy = pick(
        variant,
        "lookup_inspo",
        method=evolving(proposals),
        base=Instructed(Population(("",), 1.0)),
        reflecting=evolving(Reflecting(request="?\n", characters=100)),
    )
    return small("lookup-inspo", LOOKUP, inspo(**rates(LOOKUP)), Rollouts(16, strategy), label="INSPO")

"""The tasks of the small experiments with ArCHer, which `configs/archer.py` names."""

from dataclasses import dataclass

from agentrl_jax.configs.small import SmallTask


@dataclass(frozen=True)
class ArcherTask(SmallTask):
    """A task with its published discount and warm-up; those in the last block are ours."""

    gamma: float = 0.95  # per turn; the paper has .98 for its detective game and .9 for WebShop

    vocabulary: int = 1024  # of the policy's tokenizer, whose tokens may span spaces
    state_lengths: tuple[int, ...] = (128,)  # that the critic pads to, in tokens of its encoder
    utterance_lengths: tuple[int, ...] = (16,)
    value_bias: float = -9.0  # initial bias of the critic's heads
    # the critic's encoder is initialized from the policy's trunk; False: a small fresh encoder with
    # whole lines of Twenty Questions as tokens
    policy_trunk: bool = True
    critic_steps: int = 80  # per iteration
    # in the policy's tokens, that a joint critic pads the utterances of V's target to
    branch_lengths: tuple[int, ...] = (8,)


def _twenty_questions_task(words: str, max_length: int) -> ArcherTask:
    return ArcherTask(
        "TwentyQuestions-v0",
        "mixture",
        max_length,
        24,
        {"words": words},
        state_lengths=(48,),
        utterance_lengths=(8,),
        policy_trunk=False,
        branch_lengths=(4, 8),
    )


TASKS = {
    "subset": _twenty_questions_task("subset", 128),
    "questions": _twenty_questions_task("all", 192),
    "city": ArcherTask(
        "GuessCity-v0",
        "mixture",
        304,
        20,
        vocabulary=2048,
        state_lengths=(272,),
        utterance_lengths=(20,),
        critic_steps=30,
    ),
    "detective": ArcherTask(
        "HarbourCase-v0",
        "mixture",
        96,
        12,
        gamma=0.98,
        state_lengths=(80,),
        utterance_lengths=(16,),
        value_bias=60.0,
    ),
    "shop": ArcherTask(
        "Shop-v0",
        "mixture",
        320,
        16,
        {"products": 40},
        200,
        0.9,
        vocabulary=2048,
        state_lengths=(256,),
        utterance_lengths=(16,),
        value_bias=0.5,
        critic_steps=30,
    ),
}

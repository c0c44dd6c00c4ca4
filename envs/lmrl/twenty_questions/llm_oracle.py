"""The published prompts of Twenty Questions' language-model oracles, and how replies are parsed."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from agentrl_jax.envs.lmrl.oracles import CompletionFunction, LLMOracle
from agentrl_jax.envs.options import checked_choice


def lmrl_prompt(hidden: str, question: str) -> str:
    """LMRL-Gym's prompt for its flan-t5-xl (4 tokens, greedy)."""
    return (
        "Answer the question about the object truthfully.\nobject: "
        f"({hidden.split(';')[0]})\nquestion: {question}\nanswer (yes or no): "
    )


def parse_lmrl_answer(hidden: str, reply: str) -> str:
    """ "Yes." where the reply begins with yes, else "No."."""
    return "Yes." if reply.strip().lower().startswith("yes") else "No."


def archer_prompt(hidden: str, question: str) -> str:
    """ArCHer's prompt for its flan-t5-small."""
    return f"The object is {hidden.split(';')[0].lower()}.{question}"


def parse_archer_answer(hidden: str, reply: str) -> str:
    """ "Yes." where the reply contains "yes", else "No." where it contains "no", else invalid."""
    lowered = reply.lower()
    return "Yes." if "yes" in lowered else "No." if "no" in lowered else "Invalid Question."


PROMPT_FORMS: Mapping[str, tuple[Callable[[str, str], str], Callable[[str, str], str]]] = (
    MappingProxyType(
        {"lmrl": (lmrl_prompt, parse_lmrl_answer), "archer": (archer_prompt, parse_archer_answer)}
    )
)


def make_llm_oracle(complete: CompletionFunction, form: str = "lmrl") -> LLMOracle:
    """A language model as the oracle of this game.

    Raises:
        UserError: the form of the prompt is unknown.
    """
    return LLMOracle(complete, *PROMPT_FORMS[checked_choice("form", form, PROMPT_FORMS)])

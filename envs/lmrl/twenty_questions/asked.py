"""The published prompts of Twenty Questions' language-model oracles, and how their replies are read."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from agentrl_jax.envs.lmrl.oracles import Ask, Asked
from agentrl_jax.errors import UserError


def lmrl_prompt(hidden: str, question: str) -> str:
    """What LMRL-Gym asks its flan-t5-xl (4 tokens, greedy)."""
    return f"Answer the question about the object truthfully.\nobject: ({hidden.split(';')[0]})\nquestion: {question}\nanswer (yes or no): "


def lmrl_answer(hidden: str, reply: str) -> str:
    """ "Yes." where the reply begins so; anything else is "No."."""
    return "Yes." if reply.strip().lower().startswith("yes") else "No."


def archer_prompt(hidden: str, question: str) -> str:
    """What ArCHer asks its flan-t5-small."""
    return f"The object is {hidden.split(';')[0].lower()}.{question}"


def archer_answer(hidden: str, reply: str) -> str:
    """Whatever holds "yes", then whatever holds "no"; else the question is called invalid."""
    said = reply.lower()
    return "Yes." if "yes" in said else "No." if "no" in said else "Invalid Question."


FORMS: Mapping[str, tuple[Callable[[str, str], str], Callable[[str, str], str]]] = MappingProxyType(
    {"lmrl": (lmrl_prompt, lmrl_answer), "archer": (archer_prompt, archer_answer)}
)


def asked(ask: Ask, form: str = "lmrl") -> Asked:
    """A language model as this task's oracle. Raises UserError where the form is unknown."""
    if form not in FORMS:
        raise UserError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    return Asked(ask, *FORMS[form])

"""ArCHer's prompt for a language model as the oracle of Guess My City."""

from agentrl_jax.envs.lmrl.guess_city.knowledge import cities
from agentrl_jax.envs.lmrl.guess_city.name_matching import censor_reply, row_by_name
from agentrl_jax.envs.lmrl.oracles import CompletionFunction, LLMOracle

MAX_REPLY_LENGTH = 1000  # characters of a reply that are used


def oracle_prompt(hidden: str, question: str) -> str:
    """ArCHer's prompt for its flan-t5-small (64 tokens)."""
    return f"Your home town is {cities()[row_by_name()[hidden.lower()]].names[0]}.{question}"


def parse_answer(hidden: str, reply: str) -> str:
    """The reply on one line; a reply that names the city or its country is withheld."""
    return censor_reply(
        cities()[row_by_name()[hidden.lower()]], " ".join(reply[:MAX_REPLY_LENGTH].split())
    )


def make_llm_oracle(complete: CompletionFunction) -> LLMOracle:
    """A language model as the oracle of this game."""
    return LLMOracle(complete, oracle_prompt, parse_answer)

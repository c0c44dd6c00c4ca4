"""ArCHer's prompt for the language-model oracle of Guess My City, and how its replies are read."""

from agentrl_jax.envs.lmrl.guess_city.names import kept_secret, rows
from agentrl_jax.envs.lmrl.guess_city.table import cities
from agentrl_jax.envs.lmrl.oracles import Ask, Asked

LETTERS = 1000  # of a reply that are heard


def prompt(hidden: str, question: str) -> str:
    """What ArCHer asks its flan-t5-small (64 tokens)."""
    return f"Your home town is {cities()[rows()[hidden.lower()]].names[0]}.{question}"


def answer(hidden: str, reply: str) -> str:
    """The reply on one line; one that names the city or its country is withheld."""
    return kept_secret(cities()[rows()[hidden.lower()]], " ".join(reply[:LETTERS].split()))


def asked(ask: Ask) -> Asked:
    """A language model as this task's oracle."""
    return Asked(ask, prompt, answer)

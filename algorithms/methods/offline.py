"""From a data set alone: values of tokens that steer an imitating policy (LMRL-Gym, arXiv 2311.18232)."""

from typing import Any

from agentrl_jax.algorithms.token_values import Expectile, MonteCarlo, TokenValuesConfig
from agentrl_jax.optimizer import AdamWConfig


def ilql(gamma: float = 0.99, tau: float = 0.7, conservative: float = 0.01, polyak: float = 0.005, **settings: Any) -> TokenValuesConfig:
    """ILQL (arXiv 2206.11871): Q regressed on r + gamma V, V on an expectile of the target Q, CQL's term.

    Released scripts: tau .95 and no CQL term in mazes, .8 in Text-Nav, .7 elsewhere; CQL's weight 1 in chess; rates 1e-4, 3e-5 on
    Wordle, 1e-5 in dialogues. gamma counts tokens: six turns of six tokens discount by .7. In the released chained data the last state
    of an episode bootstraps on itself; here y = r.
    """
    filled: dict[str, Any] = {"optimizer": AdamWConfig(3e-5, b2=0.95), "conservative": conservative, "polyak": polyak}
    return TokenValuesConfig(Expectile(gamma, tau), **filled | settings)


def monte_carlo(gamma: float = 0.99, conservative: float = 0.01, polyak: float = 0.005, **settings: Any) -> TokenValuesConfig:
    """Q regressed on the discounted returns of the data (with `SteeredConfig(twins=1)`: one Q head); no CQL term in mazes and chess."""
    filled: dict[str, Any] = {"optimizer": AdamWConfig(1e-4, b2=0.95), "conservative": conservative, "polyak": polyak}
    return TokenValuesConfig(MonteCarlo(gamma), **filled | settings)

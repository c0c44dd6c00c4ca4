"""IGPO, ARPO and AEPO on searching, each beside its own base, from one fine-tuning.

The phases `<method>_base` and `<method>` are those of `search_<method>.py:base` and of
`search_<method>.py`, the base of `aepo` is `arpo`: a run of one seed compares three methods for the
price of one fine-tuning. `:smoke` takes two steps of each phase.

Hardware: one CPU core, 20 to 28 minutes; success on held-out pages .12 before, .20 to .22 after

    agentrl-train --config=configs/search_methods.py[:smoke]
"""

from agentrl_jax.configs import search_aepo, search_arpo, search_igpo
from agentrl_jax.configs.small import from_one_start, pick
from agentrl_jax.training.config import Experiment

METHODS = {"igpo": search_igpo, "arpo": search_arpo, "aepo": search_aepo}


def get_config(variant: str = "pairs") -> Experiment:
    smoke = pick(variant, "search_methods", pairs=False, smoke=True)
    sides = {}
    for name, module in METHODS.items():
        if name != "aepo":
            sides[f"{name}_base"] = module.get_config("smoke" if smoke else "base")
        sides[name] = module.get_config("smoke" if smoke else "method")
    config = from_one_start(**sides)
    config.name = f"search-{variant}"
    config.evaluation.episodes = 2 if smoke else 128
    config.engine.alternatives = sides["arpo"].engine.alternatives
    return config

"""Environments of PettingZoo, made with its AEC API."""

from typing import Any

from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.errors import UserError


def make_aec(name: str, api: str, module: str, options: dict[str, Any]) -> Any:
    """PettingZoo's environment with the AEC API, which renders as text where it can.

    Raises:
        UserError: the package or the environment is missing, or it does not take the options.
    """
    library = import_package("pettingzoo", "pettingzoo")
    conversions = import_package("pettingzoo.utils.conversions", "pettingzoo")
    if module:
        import_package(module, "pettingzoo")
    try:
        env = library.make(api, name, **options)
        if "ansi" in env.metadata.get("render_modes", []) and "render_mode" not in options:
            env = library.make(api, name, **options, render_mode="ansi")
        env = conversions.parallel_to_aec(env) if api == "parallel" else env
        assert env.possible_agents, "it has no list of its agents"
    except Exception as error:  # of the constructor of any environment
        raise UserError(f"PettingZoo does not make {name!r} with {options}: {error}") from error
    return env

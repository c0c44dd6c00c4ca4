"""Measure: agentrl-bench NAME prints one JSON line. NAME is sampling, agentic, update, utterances, latency, async, cost, scaling, steps,
methods, lmrl or hierarchical.

agentrl-bench sampling                                              ours alone
agentrl-bench agentic --rival=trl --rival_python=PATH --repeats=5   beside a rival, in turn with it
agentrl-bench latency --help                                        the flags of a bench
"""

import importlib
import json
import sys
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch import command

MODULES = {
    "sampling": "sampling.Sampling", "agentic": "agentic.Agentic", "update": "update.Update", "utterances": "utterances.Utterances",
    "latency": "latency.Latency", "async": "asynchronous.Asynchronous", "cost": "cost.Cost", "scaling": "scaling.Scaling",
    "steps": "stepping.Stepping", "methods": "methods.Methods", "lmrl": "boards.LMRL", "hierarchical": "boards.Hierarchical",
}  # fmt: skip


def found(name: str) -> Any:
    """The dataclass of a bench's flags, with a method `run`."""
    module, _, kind = MODULES[name].partition(".")
    return getattr(importlib.import_module(f"agentrl_jax.launch.benches.{module}"), kind)


def bench(name: str) -> None:
    from agentrl_jax.launch import options

    if name not in MODULES:
        raise UserError(f"say what to measure: agentrl-bench {'|'.join(MODULES)}" + (f", not {name!r}" if name else ""))
    measured = options.read(found(name))
    measured.prepare()
    print(json.dumps(measured.run()))


def main() -> None:
    from agentrl_jax.launch import options

    program, *rest = sys.argv
    name = rest.pop(0) if rest and not rest[0].startswith("-") else ""
    if name in MODULES:
        options.declare(found(name))
    elif name:
        rest = []  # its flags cannot be known: the name is what is wrong
    sys.exit(command.run(lambda: bench(name), [program, *rest]))


if __name__ == "__main__":
    main()

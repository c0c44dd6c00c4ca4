"""Measure: agentrl-bench sampling|agentic|update|latency|async|cost|scaling|steps|methods|lmrl|hierarchical; prints one JSON line.

agentrl-bench sampling                                              ours alone
agentrl-bench agentic --rival=trl --rival_python=PATH --repeats=5   beside a rival, in turn with it
agentrl-bench latency --help                                        the flags of a bench
"""

import json
import sys
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch import command


def benches() -> dict[str, Any]:
    """Each is a dataclass of its flags with a method `run`."""
    from agentrl_jax.launch.benches.agentic import Agentic
    from agentrl_jax.launch.benches.asynchronous import Asynchronous
    from agentrl_jax.launch.benches.boards import LMRL, Hierarchical
    from agentrl_jax.launch.benches.cost import Cost
    from agentrl_jax.launch.benches.latency import Latency
    from agentrl_jax.launch.benches.methods import Methods
    from agentrl_jax.launch.benches.sampling import Sampling
    from agentrl_jax.launch.benches.scaling import Scaling
    from agentrl_jax.launch.benches.stepping import Stepping
    from agentrl_jax.launch.benches.update import Update

    return {
        "sampling": Sampling, "agentic": Agentic, "update": Update, "latency": Latency, "async": Asynchronous, "cost": Cost,
        "scaling": Scaling, "steps": Stepping,
        "methods": Methods, "lmrl": LMRL, "hierarchical": Hierarchical,
    }  # fmt: skip


def bench(name: str, known: dict[str, Any]) -> None:
    from agentrl_jax.launch import options

    if name not in known:
        raise UserError(f"say what to measure: agentrl-bench {'|'.join(known)}" + (f", not {name!r}" if name else ""))
    measured = options.read(known[name])
    measured.prepare()
    print(json.dumps(measured.run()))


def main() -> None:
    from agentrl_jax.launch import options

    program, *rest = sys.argv
    name = rest.pop(0) if rest and not rest[0].startswith("-") else ""
    known = benches()
    if name in known:
        options.declare(known[name])
    elif name:
        rest = []  # its flags cannot be known: the name is what is wrong
    sys.exit(command.run(lambda: bench(name, known), [program, *rest]))


if __name__ == "__main__":
    main()

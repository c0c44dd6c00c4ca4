"""Measure: agentrl-bench NAME prints one JSON line. NAME is sampling, agentic, update, attention,
utterances, latency, async, cost, scaling, steps, splits, invariants, recording, methods, lmrl,
hierarchical, archer_claim, systems, base_model, fine_tuning, sandbox, sandbox_attacks, code,
code_methods, vision_methods, look_up_methods, world_methods, images, image_update, mint, ratings,
search_index, dense_search or look_up_steps.

agentrl-bench agentic --rival=trl --rival_python=PATH --repeats=5   (--help: its flags)
"""

import importlib
import json
import sys
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli

MODULES = {
    "sampling": "sampling.Sampling",
    "agentic": "agentic.Agentic",
    "update": "update.Update",
    "attention": "attention.Attention",
    "utterances": "utterances.Utterances",
    "latency": "latency.Latency",
    "async": "asynchronous.Asynchronous",
    "cost": "cost.Cost",
    "scaling": "scaling.Scaling",
    "steps": "env_steps.Stepping",
    "splits": "split_overlap.SplitOverlap",
    "invariants": "invariant_cost.InvariantCost",
    "recording": "recording_cost.RecordingCost",
    "methods": "method_claims.Methods",
    "lmrl": "reproduction.LMRL",
    "hierarchical": "reproduction.Hierarchical",
    "archer_claim": "archer_claim.ArcherClaim",
    "systems": "systems.table.SystemsTable",
    "base_model": "base_model.BaseModel",
    "fine_tuning": "fine_tuning.FineTuning",
    "sandbox": "sandbox.cost.SandboxCost",
    "sandbox_attacks": "sandbox.table.AttackTable",
    "code_methods": "code_claims.CodeMethods",
    "code": "code_problems.CodeProblemsBench",
    "vision_methods": "vision_claims.VisionMethods",
    "images": "image_prefill.ImagePrefill",
    "image_update": "image_update.ImageUpdate",
    "mint": "mint.Mint",
    "ratings": "ratings.Ratings",
    "search_index": "search_index.SearchIndex",
    "dense_search": "dense_search.DenseSearch",
    "look_up_methods": "look_up_claims.LookUpMethods",
    "world_methods": "world_claims.WorldMethods",
    "look_up_steps": "look_up_steps.LookUpSteps",
}


def bench_class(name: str) -> Any:
    """The dataclass with a benchmark's flags and its method `run`."""
    module, _, kind = MODULES[name].rpartition(".")
    return getattr(importlib.import_module(f"agentrl_jax.launch.benchmarks.{module}"), kind)


def bench(name: str) -> None:
    from agentrl_jax.launch import dataclass_flags

    if name not in MODULES:
        suffix = f", not {name!r}" if name else ""
        raise UserError(f"name a benchmark: agentrl-bench {'|'.join(MODULES)}{suffix}")
    (benchmark := dataclass_flags.from_flags(bench_class(name))).prepare()
    print(json.dumps(benchmark.run()))


def main() -> None:
    from agentrl_jax.launch import dataclass_flags

    program, *remaining = sys.argv
    name = remaining.pop(0) if remaining and not remaining[0].startswith("-") else ""
    if name in MODULES:
        dataclass_flags.define_flags(bench_class(name))
    elif name:
        remaining = []  # flags of an unknown benchmark: the error is about the name
    sys.exit(cli.run(lambda: bench(name), [program, *remaining]))


if __name__ == "__main__":
    main()

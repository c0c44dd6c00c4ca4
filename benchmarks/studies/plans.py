"""The plans of docs/scaling.md: python benchmarks/studies/plans.py [--only=NAME,...] [--print_only]

A cell is one `agentrl-plan`; its report is cached in benchmarks/results/plans/<name>.json. Compiles
for described chips: it needs libtpu, and some minutes and gigabytes for each cell. Writes the
tables of docs/scaling.md, including that of `agentrl-bench scaling`.
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from absl import flags

from agentrl_jax.launch import cli, doc_tables

RESULTS = Path(__file__).parents[1] / "results"
PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
flags.DEFINE_list("only", [], "Which cells; empty: all.")
flags.DEFINE_bool("print_only", False, "Compile nothing.")

V5E: dict[str, Any] = {
    "topology": "v5e:8x8",
    "preset": "qwen3_8b",
    "rows": 64,
    "length": 8192,
    "positions": 8192,
    "engine_rows": 8,
    "programs": "update",
}
V5P: dict[str, Any] = V5E | {"topology": "v5p:4x4x4", "preset": "qwen3_32b", "engine_rows": 32}
# Weights, gradient and moments of half the size.
BFLOAT16 = {"param_dtype": "bfloat16"}
V5E_BFLOAT16, V5P_BFLOAT16 = V5E | BFLOAT16, V5P | BFLOAT16
# Four images of 448 x 448 pixels, 1,024 of the 4,096 tokens, in every row.
VISION: dict[str, Any] = V5E | {
    "preset": "qwen2_5_vl_7b",
    "length": 4096,
    "positions": 4096,
    "images": 4,
    "programs": "update,encode",
}
CELLS: dict[str, dict[str, Any]] = {
    "qwen3_8b-v5e-64": V5E,
    "qwen3_8b-v5e-64-rounding": V5E_BFLOAT16 | {"stochastic_rounding": True},
    "qwen3_8b-v5e-64-tensor-2": V5E | {"fsdp": 32, "tensor": 2},
    "qwen3_8b-v5e-64-engine": V5E | {"programs": "publish,prefill,decode"},
    "qwen3_8b-v5e-64-length-x10": V5E_BFLOAT16 | {"length": 81_920, "programs": "update"},
    "qwen3_8b-v5e-64-calls-x10": V5E_BFLOAT16 | {"engine_rows": 80, "programs": "decode"},
    "qwen3_8b-v5e-64-slices-x10": V5E_BFLOAT16
    | {"topology": "10x v5e:8x8", "data": 10, "rows": 640, "programs": "update"},
    "qwen2_5_vl_7b-v5e-64": VISION,
    "qwen2_5_vl_7b-v5e-64-frozen": VISION | {"frozen": "tower", "programs": "update"},
    "qwen2_5_vl_7b-v5e-64-engine": VISION | {"programs": "prefill,decode"},
    "qwen3_32b-v5p-128": V5P_BFLOAT16 | {"programs": "update"},
    "qwen3_32b-v5p-128-publish": V5P | {"programs": "publish"},
    "qwen3_32b-v5p-128-length-x10": V5P_BFLOAT16 | {"length": 81_920, "programs": "update"},
    "qwen3_32b-v5p-128-calls-x10": V5P_BFLOAT16 | {"engine_rows": 320, "programs": "decode"},
    "qwen3_32b-v5p-128-slices-x10": V5P_BFLOAT16
    | {"topology": "10x v5p:4x4x4", "data": 10, "rows": 640, "programs": "update"},
}


def make_plans() -> None:
    from agentrl_jax.launch.benchmarks.scaling import Scaling
    from agentrl_jax.launch.plans.planning import cached_report
    from agentrl_jax.launch.plans.subject import PlanSpec
    from agentrl_jax.launch.plans.tables import plans_table, scaling_table

    reports: dict[str, Any] = {}
    for name, fields in CELLS.items():
        path = RESULTS / "plans" / f"{name}.json"
        if path.exists() or not (
            flags.FLAGS.print_only or (flags.FLAGS.only and name not in flags.FLAGS.only)
        ):
            reports[name] = cached_report(PlanSpec(**fields), path)
            print(f"{name}: {reports[name]['command']}", file=sys.stderr, flush=True)
    doc_tables.replace_section(PAGE, "plans", plans_table(reports))
    bench = Scaling()
    cells = [(kind, RESULTS / "scaling" / name, spec) for kind, name, spec in bench.cells()]
    doc_tables.replace_section(
        PAGE,
        "scaling",
        scaling_table(
            [(kind, cached_report(spec, path)) for kind, path, spec in cells if path.exists()]
        ),
    )


if __name__ == "__main__":
    sys.exit(cli.run(make_plans))

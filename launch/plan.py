"""Plan: compile an update and an engine for TPUs that are not attached; print what each chip holds
and computes.

agentrl-plan --topology=v5e:8x8 --model=FOLDER --length=8192 --rows=64
agentrl-plan --topology=v5p:4x4x4 --preset=qwen3_8b --data=4 --fsdp=16 --engine_tensor=4 --json
agentrl-plan --topology='2x v5e:4x4' --sizes=layers=2,width=256,hidden=512,head_size=64 --data=2

Needs libtpu: pip install 'agentrl_jax[aot]'. Times are at the chip's peak rates: nothing is
measured.
"""

import json
import os
import sys

from absl import flags

from agentrl_jax.launch import cli

flags.DEFINE_bool("json", False, "Print one line of JSON with every figure.")
flags.DEFINE_integer(
    "show", 12, "How many kinds of collective of each program are listed.", lower_bound=0
)


def make_plan() -> None:
    import jax

    jax.config.update("jax_platforms", "cpu")  # only described chips are used: none is initialized
    from agentrl_jax.launch import dataclass_flags
    from agentrl_jax.launch.plans.planning import compile_plan
    from agentrl_jax.launch.plans.report import format_plan
    from agentrl_jax.launch.plans.subject import PlanSpec

    plan = compile_plan(dataclass_flags.from_flags(PlanSpec))
    print(json.dumps(plan.report()) if flags.FLAGS.json else format_plan(plan, flags.FLAGS.show))


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from agentrl_jax.launch import dataclass_flags
    from agentrl_jax.launch.plans.subject import PlanSpec

    dataclass_flags.define_flags(PlanSpec)
    sys.exit(cli.run(make_plan))


if __name__ == "__main__":
    main()

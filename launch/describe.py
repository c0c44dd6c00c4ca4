"""What a model takes, before anything is allocated: parameters, memory on each device of a mesh, operations a token.

agentrl-describe --model=FOLDER [--fsdp=8 --tensor=2] [--length=4096] [--compute_dtype=bfloat16] [--platform=tpu]
agentrl-describe --preset=qwen3_8b --fsdp=16
"""

import sys

from absl import flags

from agentrl_jax.launch import command

flags.DEFINE_string("model", "", "The folder of a Hugging Face model, or its name on the hub where there is a network.")
flags.DEFINE_string("preset", "", "Or the name of a function of agentrl_jax.models.presets.")
for axis in ("data", "fsdp", "expert", "tensor"):
    flags.DEFINE_integer(axis, 1, f"The mesh's {axis} axis.", lower_bound=1)
flags.DEFINE_integer("length", 4096, "Tokens of a row.", lower_bound=1)
flags.DEFINE_string("param_dtype", "float32", "Of the weights, the gradient and the optimizer's moments.")
flags.DEFINE_string("compute_dtype", "bfloat16", "Of activations and the cache.")
flags.DEFINE_enum("platform", "tpu", ["tpu", "cuda", "rocm", "cpu"], "What it would run on.")


def describe() -> None:
    import dataclasses

    import jax

    jax.config.update("jax_platforms", "cpu")  # only shapes are computed: no accelerator is woken for them
    from agentrl_jax.errors import UserError
    from agentrl_jax.launch.plans.subject import preset
    from agentrl_jax.models import folder
    from agentrl_jax.models.sizes import sizes_of, table
    from agentrl_jax.sharding import MeshConfig

    f = flags.FLAGS
    if bool(f.model) == bool(f.preset):
        raise UserError("give a model's folder with --model=..., or one of --preset=...")
    if f.preset:
        config, vocab_size = preset(f.preset)
        policy = dataclasses.replace(config, param_dtype=f.param_dtype, compute_dtype=f.compute_dtype).build(vocab_size)
    else:
        policy = folder.describe(f.model, f.param_dtype, f.compute_dtype)
    mesh = MeshConfig(data=f.data, fsdp=f.fsdp, expert=f.expert, tensor=f.tensor)
    print(table(sizes_of(policy, mesh, f.length, f.platform), mesh, f.length))


def main() -> None:
    sys.exit(command.run(describe))


if __name__ == "__main__":
    main()

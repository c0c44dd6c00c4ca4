"""Describe a model before anything is allocated: parameters, memory per device, FLOPs per token.

agentrl-describe --model=FOLDER [--fsdp=8 --tensor=2] [--length=4096] [--platform=tpu]
agentrl-describe --preset=qwen3_8b --fsdp=16
"""

import sys

from absl import flags

from agentrl_jax.launch import cli

flags.DEFINE_string(
    "model",
    "",
    "The folder of a Hugging Face model, or its name on the hub where there is a network.",
)
flags.DEFINE_string("preset", "", "Or the name of a preset: qwen3_8b, qwen2_5_vl_7b, ...")
for axis in ("data", "fsdp", "expert", "tensor"):
    flags.DEFINE_integer(axis, 1, f"The mesh's {axis} axis.", lower_bound=1)
flags.DEFINE_integer("length", 4096, "Tokens of a row.", lower_bound=1)
flags.DEFINE_integer(
    "image_pixels",
    1024,
    "A side of the image whose cost is shown.",
    lower_bound=1,
)
flags.DEFINE_string(
    "param_dtype", "float32", "Of the weights, the gradient and the optimizer's moments."
)
flags.DEFINE_string("compute_dtype", "bfloat16", "Of activations and the cache.")
flags.DEFINE_enum(
    "platform", "tpu", ["tpu", "cuda", "rocm", "cpu"], "The platform it would run on."
)


def describe() -> None:
    import dataclasses

    import jax

    # Only shapes are computed: no accelerator is initialized.
    jax.config.update("jax_platforms", "cpu")
    from agentrl_jax.distributed.sharding import MeshConfig
    from agentrl_jax.errors import UserError
    from agentrl_jax.launch.plans.model_shapes import load_preset
    from agentrl_jax.models.hf import folder
    from agentrl_jax.models.memory_estimate import estimate_memory, format_table

    f = flags.FLAGS
    if bool(f.model) == bool(f.preset):
        raise UserError("give a model's folder with --model=..., or one of --preset=...")
    if f.preset:
        config, vocab_size = load_preset(f.preset)
        policy = dataclasses.replace(
            config, param_dtype=f.param_dtype, compute_dtype=f.compute_dtype
        ).build(vocab_size)
    else:
        policy = folder.read_decoder(f.model, f.param_dtype, f.compute_dtype)
    mesh = MeshConfig(data=f.data, fsdp=f.fsdp, expert=f.expert, tensor=f.tensor)
    estimate = estimate_memory(policy, mesh, f.length, f.platform, f.image_pixels)
    print(format_table(estimate, mesh, f.length))


def main() -> None:
    sys.exit(cli.run(describe))


if __name__ == "__main__":
    main()

"""Play an environment in the terminal, or watch a policy play it.

agentrl-play --environment=agentrl/Wordle-v0                     you play
agentrl-play --run_dir=runs/quickstart --watch=policy            a checkpoint plays
agentrl-play --environment=agentrl/MazeFO-v0 --watch=expert      a scripted policy plays
"""

import sys

from absl import flags

from agentrl_jax.launch import cli

flags.DEFINE_string("environment", "", "A Gymnasium id; by default the run's.")
flags.DEFINE_multi_string(
    "option", [], "name=value for the environment's constructor; may be repeated."
)
cli.define_run_flags("The run whose policy to watch.")
flags.DEFINE_string(
    "watch", None, "`policy` for the run's, or a scripted policy; by default you play."
)
flags.DEFINE_integer(
    "seed", None, "The environment's seed; by default a random one.", lower_bound=0
)
flags.DEFINE_string(
    "images", "", "The folder for images that are shown; by default a temporary one."
)
flags.DEFINE_string(
    "sheet",
    "",
    "A PNG file for a watched episode's images, with the boxes and points that actions name.",
)
flags.DEFINE_float("temperature", 1.0, "Of the policy; 0 is greedy.", lower_bound=0.0)


def play() -> None:
    from agentrl_jax.errors import UserError
    from agentrl_jax.launch import players
    from agentrl_jax.launch.shown_images import ImageFolder
    from agentrl_jax.training.seeds import ENV_SEED_END, check_seed

    f = flags.FLAGS
    check_seed("--seed", f.seed or 0, ENV_SEED_END)
    cli.trust_named(f.trust)
    environment = players.resolve_environment(f.environment, f.option, f.run_dir, workers=0)
    images = ImageFolder(f.images)
    if f.watch is None:
        if f.sheet:
            raise UserError("--sheet is of an episode that is watched: give --watch")
        players.play_interactively(environment, f.seed, images)
    else:
        checkpoint = players.named_checkpoint(f.run_dir, f.phase, f.agent, cli.wants_best())
        players.watch(environment, f.watch, checkpoint, f.seed, f.temperature, images, f.sheet)


def main() -> None:
    sys.exit(cli.run(play))


if __name__ == "__main__":
    main()

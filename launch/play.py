"""Play an environment in the terminal, or watch somebody play it.

agentrl-play --environment=agentrl/Wordle-v0                     you play
agentrl-play --run_dir=runs/quickstart --watch=policy            a checkpoint plays
agentrl-play --environment=agentrl/MazeFO-v0 --watch=expert      a scripted player plays
"""

import sys
from pathlib import Path

from absl import flags

from agentrl_jax.launch import command

flags.DEFINE_string("environment", "", "A Gymnasium id; by default the run's.")
flags.DEFINE_multi_string("option", [], "name=value for the environment's constructor; may be repeated.")
flags.DEFINE_string("run_dir", "", "The run whose policy to watch.")
flags.DEFINE_string("phase", None, "Which of its phases; by default the last that has a checkpoint.")
flags.DEFINE_string("watch", None, "Who plays: policy, or a scripted player; by default you.")
flags.DEFINE_integer("seed", None, "The world's seed; by default a new world each time.", lower_bound=0)
flags.DEFINE_multi_string("trust", [], "A module of yours that the run's config names.")
flags.DEFINE_float("temperature", 1.0, "Of the policy; 0 is greedy.", lower_bound=0.0)


def play() -> None:
    from agentrl_jax import configfile
    from agentrl_jax.launch import seats

    f = flags.FLAGS
    for module in f.trust:
        configfile.trust(module)
    environment = seats.environment_of(f.environment, f.option, f.run_dir, workers=0)
    if f.watch is None:
        seats.person(environment, f.seed)
    else:
        seats.watch(environment, f.watch, Path(f.run_dir) if f.run_dir else None, f.phase, f.seed, f.temperature)


def main() -> None:
    sys.exit(command.run(play))


if __name__ == "__main__":
    main()

"""Evaluate a run's policy or a scripted one: mean return with its 95 % interval, success, turns.

agentrl-evaluate --run_dir=runs/quickstart [--phase=sft] [--temperature=0] [--environment=...]
agentrl-evaluate --run_dir=runs/chain-supo --agent_option=context.max_summaries=14
agentrl-evaluate --environment=agentrl/Wordle-v0 --player=expert [--option=words=64]
"""

import sys

from absl import flags

from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli
from agentrl_jax.launch.garbage_collection import collect_seldom

cli.define_run_flags("The run whose policy is evaluated.")
flags.DEFINE_string(
    "environment",
    "",
    "A Gymnasium id, with `module:` before it where the environment is yours, or a label of the "
    "run; by default the run's own. The run need not have trained on it.",
)
flags.DEFINE_multi_string(
    "option", [], "name=value for the environment's constructor; may be repeated."
)
flags.DEFINE_multi_string(
    "agent_option",
    [],
    "name=value for a field of the agent's config, in place of the run's, as limits.turns=20 or "
    "context.max_summaries=14; may be repeated.",
)
flags.DEFINE_string(
    "player", None, "A scripted policy of the environment, instead of a run's policy."
)
flags.DEFINE_integer("episodes", 512, "How many environments, an episode each.", lower_bound=1)
flags.DEFINE_integer("seed", 1_000_000_000, "The first environment's seed.", lower_bound=0)
flags.DEFINE_float("temperature", 1.0, "Of the policy; 0 is greedy.", lower_bound=0.0)
flags.DEFINE_integer("workers", 1, "Environment processes; 0: this one.", lower_bound=0)


def evaluate() -> None:
    from agentrl_jax.launch import players
    from agentrl_jax.training.seeds import ENV_SEED_END, check_seed

    f = flags.FLAGS
    check_seed("--seed", f.seed, ENV_SEED_END)
    cli.trust_named(f.trust)
    environment = players.resolve_environment(f.environment, f.option, f.run_dir, f.workers)
    if f.player and f.agent_option:
        raise UserError("--agent_option is of a run's agent: leave it out with --player")
    checkpoint = players.named_checkpoint(
        f.run_dir, f.phase, f.agent, cli.wants_best(), f.agent_option
    )
    collect_seldom()
    players.evaluate(environment, f.player, checkpoint, f.episodes, f.seed, f.temperature)


def main() -> None:
    sys.exit(cli.run(evaluate))


if __name__ == "__main__":
    main()

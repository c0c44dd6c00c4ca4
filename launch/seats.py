"""Who sits where: a person, a scripted player or a checkpoint, in any environment."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax import configfile
from agentrl_jax.environment import Messages, make
from agentrl_jax.errors import UserError
from agentrl_jax.evaluation import play_all, strategy_of
from agentrl_jax.experiment import EnvironmentConfig
from agentrl_jax.launch.options import literals
from agentrl_jax.local_engine import LocalEngine
from agentrl_jax.reporting import table_of
from agentrl_jax.run import load_policy, make_agent, make_runtime, trained_phase
from agentrl_jax.statistics import summarize
from agentrl_jax.trajectories import Trajectory


def environment_of(name: str, options: Sequence[str], run_dir: str, workers: int) -> EnvironmentConfig:
    """The named environment, or the run's; options are name=value with Python literals."""
    if not name and not run_dir:
        raise UserError("say which environment with --environment=agentrl/Wordle-v0, or which run with --run_dir=runs/...")
    config = EnvironmentConfig(name) if name else configfile.load(Path(run_dir)).environment
    # What the run says of its workers stays true, and some of it needs at least one.
    config.workers = workers or int(config.threads or config.interpreter != "" or config.memory_mb > 0)
    config.options.update(literals(options))
    make(config.name, config.options).close()
    return config


def trajectories_of(
    environment: EnvironmentConfig,
    player: str | None,
    run_dir: Path | None,
    phase: str | None,
    episodes: int,
    seed: int,
    temperature: float,
) -> list[Trajectory]:
    """Episodes of a scripted player, or of the run's policy where `player` is None."""
    if player is None and run_dir is None:
        raise UserError("say who plays: --player=expert, or --run_dir=runs/... for a trained policy")
    if player is not None:
        with make_runtime(environment, say=complain) as runtime:
            return play_all(runtime, environment, episodes, seed, player)
    assert run_dir is not None
    experiment, tokenizer, policy, params = load_policy(run_dir, phase)
    world = make(environment.name, environment.options)
    agent = make_agent(experiment, tokenizer, world.context)
    engine = LocalEngine(policy, experiment.engine, params, text=tokenizer.decode)
    with make_runtime(environment, {"policy": engine}, {"policy": agent}, complain) as runtime:
        how = strategy_of(experiment, run_dir, trained_phase(experiment, run_dir, phase), runtime, policy, params)
        return play_all(runtime, environment, episodes, seed, None, temperature, how)


def evaluate(
    environment: EnvironmentConfig,
    player: str | None,
    run_dir: Path | None,
    phase: str | None,
    episodes: int,
    seed: int,
    temperature: float,
) -> None:
    """Print the table's line of one player."""
    trajectories = trajectories_of(environment, player, run_dir, phase, episodes, seed, temperature)
    anchors = make(environment.name, environment.options).score_anchors
    name = player or f"{run_dir} {phase or ''}".strip()
    console = Console(highlight=False)
    console.print(table_of([summarize(name, trajectories, anchors)], console))


def show(messages: Messages) -> None:
    """What the world says, on lines of its own."""
    text = "".join(m.text for m in messages)
    print(text, end="" if text.endswith("\n") or not text else "\n")


def watch(environment: EnvironmentConfig, who: str, run_dir: Path | None, phase: str | None, seed: int | None, temperature: float) -> None:
    """Print one episode, message by message."""
    seed = random.randrange(2**31) if seed is None else seed
    player = None if who == "policy" else who
    (trajectory,) = trajectories_of(environment, player, run_dir, phase, 1, seed, temperature)
    show(trajectory.opening)
    for turn in trajectory.turns:
        print(f"> {turn.action.text}")
        show(turn.observation)
    print(ending(trajectory.total_reward, trajectory.success, len(trajectory.turns)))


def person(environment: EnvironmentConfig, seed: int | None) -> None:
    """A person types the actions; Ctrl-D leaves."""
    env = make(environment.name, environment.options)
    print(env.rules.strip(), end="\n\n")
    opening, _ = env.reset(seed=random.randrange(2**31) if seed is None else seed)
    show(opening)
    total, turns, done, info = 0.0, 0, False, {}
    while not done:
        try:
            text = input("> ")
        except EOFError:
            print("\nleft")
            return
        observation, reward, terminated, truncated, info = env.step(text)
        show(observation)
        total, turns, done = total + reward, turns + 1, terminated or truncated
    print(ending(total, info.get("success"), turns))


def complain(text: str) -> None:
    print(text, file=sys.stderr)


def ending(total: float, success: bool | None, turns: int) -> str:
    verdict = {True: "won", False: "lost", None: "over"}[success]
    return f"{verdict} after {turns} turns, return {total:g}"

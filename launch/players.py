"""Episodes of a person, a scripted policy or a checkpoint in any environment."""

import dataclasses
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax.environment import Messages, make
from agentrl_jax.errors import UserError
from agentrl_jax.launch.agent_options import with_agent_options
from agentrl_jax.launch.dataclass_flags import parse_literals
from agentrl_jax.launch.episode_sheet import save_sheet
from agentrl_jax.launch.shown_images import ImageFolder
from agentrl_jax.messages import Message, ToolSchema
from agentrl_jax.reporting.evaluation_table import evaluation_table
from agentrl_jax.reporting.statistics import summarize
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import config_json
from agentrl_jax.tool_formats import ParsedCalls, PythonListToolFormat
from agentrl_jax.tools_as_text import describe_tools
from agentrl_jax.training.agent_models import add_agents, saved_models
from agentrl_jax.training.builders import (
    find_checkpoint,
    load_tokenizer,
    make_runtime,
)
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.training.evaluation import evaluation_strategy, play_all
from agentrl_jax.training.model_configs import ModelContext, open_models
from agentrl_jax.training.phase_checkpoint import phase_checkpoint
from agentrl_jax.training.run_environments import environment_specs
from agentrl_jax.training.task_source import numbered
from agentrl_jax.trajectories import Trajectory


def resolve_environment(
    name: str, options: Sequence[str], run_dir: str, workers: int
) -> EnvironmentConfig:
    """The environment with this id, or with this label in the run, or the run's own; options are
    name=value with Python literals.
    """
    if not name and not run_dir:
        raise UserError(
            "give an environment with --environment=agentrl/Wordle-v0, or a run with "
            "--run_dir=runs/..."
        )
    config = EnvironmentConfig(name)
    if run_dir:
        experiment = config_json.load_config(Path(run_dir))
        default = experiment.environment
        specs = {"": default, **environment_specs(experiment)}
        if name in specs and name != specs[name].name:
            config = dataclasses.replace(
                default, name=specs[name].name, options=dict(specs[name].options)
            )
    # The run's settings of workers still apply, and some need at least one process.
    config.workers = workers or int(
        config.threads or config.interpreter != "" or config.memory_mb > 0
    )
    config.options.update(parse_literals(options))
    make(config.name, config.options).close()
    return config


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a run's agent after a phase; None as in `builders.find_checkpoint` and
    `phase_checkpoint`.
    """

    run_dir: Path
    phase: str | None = None
    agent: str | None = None
    best: bool | None = None  # whether the best checkpoint or the newest
    # Fields of the agent's config that are not the run's (`agent_options`).
    agent_options: Mapping[str, Any] = field(default_factory=dict)


def named_checkpoint(
    run_dir: str,
    phase: str | None,
    agent: str | None,
    best: bool | None,
    agent_options: Sequence[str] = (),
) -> Checkpoint | None:
    """The checkpoint that a command's flags name; None without a run folder."""
    options = parse_literals(agent_options, "agent_option")
    if options and not run_dir:
        raise UserError("--agent_option changes the agent of a run: give --run_dir=runs/...")
    return Checkpoint(Path(run_dir), phase, agent, best, options) if run_dir else None


def play_episodes(
    environment: EnvironmentConfig,
    scripted_policy: str | None,
    checkpoint: Checkpoint | None,
    episodes: int,
    seed: int,
    temperature: float,
) -> list[Trajectory]:
    """Episodes of a scripted policy, or of the checkpoint's where `scripted_policy` is None."""
    if scripted_policy is None and checkpoint is None:
        raise UserError(
            "give a policy: --player=expert for a scripted one, or --run_dir=runs/... for a run's"
        )
    tasks = numbered(environment.fixed_tasks(episodes, seed, environment))
    with make_runtime(environment, log=print_warning) as runtime:
        if scripted_policy is not None:
            return play_all(runtime, tasks, seed, scripted_policy)
        assert checkpoint is not None
        strategy = _saved_strategy(runtime, environment, checkpoint)
        return play_all(runtime, tasks, seed, None, temperature, strategy)


def _saved_strategy(
    runtime: Runtime, environment: EnvironmentConfig, checkpoint: Checkpoint
) -> Strategy:
    """How the checkpoint's agent plays, after all agents of its run are added to the runtime."""
    run_dir = checkpoint.run_dir
    experiment = config_json.load_config(run_dir)
    tokenizer = load_tokenizer(run_dir / "tokenizer")
    phase, agent = find_checkpoint(experiment, run_dir, checkpoint.phase, checkpoint.agent)
    experiment = with_agent_options(experiment, agent, checkpoint.agent_options)
    context = make(environment.name, environment.options).context
    step = phase_checkpoint(experiment, run_dir, phase, best=checkpoint.best)
    models = saved_models(experiment, run_dir, tokenizer, context, phase, checkpoint.best)
    add_agents(runtime, experiment, models, tokenizer, context)
    present = {name: model.params for name, model in models.items()}
    open_models(ModelContext(experiment, run_dir, runtime, tokenizer, context, present))
    policy, params = models[agent].policy, models[agent].params
    strategy = evaluation_strategy(experiment, run_dir, phase, policy, params, step=step)
    return strategy or IndependentEpisodes(1, agent)


def evaluate(
    environment: EnvironmentConfig,
    scripted_policy: str | None,
    checkpoint: Checkpoint | None,
    episodes: int,
    seed: int,
    temperature: float,
) -> None:
    """Print the row of one policy in the evaluation table."""
    trajectories = play_episodes(
        environment, scripted_policy, checkpoint, episodes, seed, temperature
    )
    anchors = make(environment.name, environment.options).score_anchors
    of_run = (checkpoint.run_dir, checkpoint.phase, checkpoint.agent) if checkpoint else ()
    name = scripted_policy or " ".join(str(part) for part in of_run if part is not None)
    console = Console(highlight=False)
    console.print(evaluation_table([summarize(name, trajectories, anchors)], console))


def print_messages(messages: Messages, images: ImageFolder) -> None:
    """Print an observation, ended by a newline; images are written into the folder."""
    text = "".join(images.text_of(m) + "\n" * (m.role == "tool") for m in messages)
    print(text, end="" if text.endswith("\n") or not text else "\n")


def watch(
    environment: EnvironmentConfig,
    policy_name: str,
    checkpoint: Checkpoint | None,
    seed: int | None,
    temperature: float,
    images: ImageFolder | None = None,
    sheet: str = "",
) -> None:
    """Print one episode of `policy`, the run's, or of a scripted policy, turn by turn.

    Its images are written into `images`; None: into a temporary folder. `sheet` names a picture of
    them with what actions name; empty: none is drawn.
    """
    images = images or ImageFolder()
    seed = random.randrange(2**31) if seed is None else seed
    scripted_policy = None if policy_name == "policy" else policy_name
    (trajectory,) = play_episodes(environment, scripted_policy, checkpoint, 1, seed, temperature)
    print_messages(trajectory.opening, images)
    for turn in trajectory.turns:
        print(f"> {PythonListToolFormat().render(turn.action.text, turn.action.tool_calls)}")
        print_messages(turn.observation, images)
    if sheet:
        save_sheet([trajectory], Path(sheet))
    text = outcome_text(trajectory.total_reward, trajectory.succeeded, len(trajectory.turns))
    print(f"{text}, stop reason: {trajectory.stop_reason}" if trajectory.truncated else text)


def play_interactively(
    environment: EnvironmentConfig, seed: int | None, images: ImageFolder
) -> None:
    """A person types the actions; Ctrl-D leaves."""
    env = make(environment.name, environment.options)
    print(env.rules.strip(), end="\n\n")
    opening, info = env.reset(seed=random.randrange(2**31) if seed is None else seed)
    tools = info.get("tools", ())
    if tools:
        print(describe_tools(tools, PythonListToolFormat()), end="\n\n")
    print_messages(opening, images)
    total, turns, done = 0.0, 0, False
    while not done:
        try:
            text = input("> ")
        except EOFError:
            print("\nleft")
            return
        observation, reward, terminated, truncated, info = env.step(typed_action(text, tools))
        print_messages(observation, images)
        total, turns, done = total + reward, turns + 1, terminated or truncated
    print(outcome_text(total, info.get("success"), turns))


def typed_action(text: str, tools: Sequence[ToolSchema]) -> Message:
    """What a person typed: `[look_up(item="fig")]` calls a tool."""
    parsed = PythonListToolFormat().parse(text, tools) if tools else ParsedCalls(text)
    return Message("assistant", parsed.content, parsed.calls)


def print_warning(text: str) -> None:
    print(text, file=sys.stderr)


def outcome_text(total: float, success: bool | None, turns: int) -> str:
    verdict = {True: "won", False: "lost", None: "over"}[success]
    return f"{verdict} after {turns} turns, return {total:g}"

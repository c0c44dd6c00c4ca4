"""What `agentrl-replay` does: calls of a run's log are sampled again and compared."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax.errors import UserError
from agentrl_jax.inference.engine_pool import make_engine
from agentrl_jax.inference.replay_check import ReplayMismatch, ReplayReport, replay_calls
from agentrl_jax.storage import config_json, trajectory_log
from agentrl_jax.training.builders import agent_policy_config, find_checkpoint, load_tokenizer
from agentrl_jax.training.replay import (
    CallSelection,
    PhaseWeights,
    RecordedCall,
    agents_with_weights_of,
    select_calls,
)
from agentrl_jax.trajectories import Call


def replay(run_dir: Path, phase: str | None, agent: str | None, limit: int) -> bool:
    """Print how much of a run's trajectory log is reproduced; returns whether all is.

    Args:
        run_dir: of the run.
        phase: whose calls; None: the last with a checkpoint.
        agent: whose calls; None: the first that the phase trains.
        limit: the most calls of a checkpoint.

    Raises:
        UserError: the log has no such call, or none that can be sampled again.
    """
    experiment = config_json.load_config(run_dir)
    phase, agent = find_checkpoint(experiment, run_dir, phase, agent)
    weights = PhaseWeights(experiment, run_dir, phase, agent)
    selection = _select(weights, limit)
    print(f"phase {phase}, agent {agent}: {selection_text(selection)}", flush=True)
    tokenizer = load_tokenizer(run_dir / "tokenizer")
    first = ""
    for version, report in replay_versions(weights, selection, tokenizer):
        print(report_text(version, report), flush=True)
        if report.mismatches and not first:
            mismatch = report.mismatches[0]
            first = mismatch_text(
                selection.replayed[version][mismatch.call], mismatch, tokenizer.decode
            )
    print(first or "every token is the recorded one")
    return not first


def _select(weights: PhaseWeights, limit: int) -> CallSelection:
    """The calls of the run's log; UserError where none can be sampled again."""
    folder = weights.run_dir / trajectory_log.FOLDER
    agents = agents_with_weights_of(weights.experiment, weights.agent)
    records = trajectory_log.read(folder)
    selection = select_calls(records, weights.phase, agents, weights.versions(), limit)
    if not selection.recorded:
        raise UserError(
            f"{folder} holds no call that the agent {weights.agent!r} sampled in the phase "
            f"{weights.phase!r}: name another run, --phase or --agent"
        )
    if not selection.replayed:
        raise UserError(f"nothing in {folder} can be sampled again: {selection_text(selection)}")
    return selection


def replay_versions(
    weights: PhaseWeights, selection: CallSelection, tokenizer: Any
) -> Iterator[tuple[int, ReplayReport]]:
    """Yields a report of each version of the weights, oldest first, from one engine.

    Raises:
        UserError: a recorded call is none of this policy's, or a checkpoint is damaged.
    """
    policy = agent_policy_config(weights.experiment, weights.agent).build(len(tokenizer))
    calls = {v: [x.call for x in selection.replayed[v]] for v in sorted(selection.replayed)}
    check_calls(itertools.chain.from_iterable(calls.values()), policy.vocab_size)
    first, *later = calls
    config, params = weights.experiment.engine, weights.load(first, policy)
    renderer = weights.experiment.agent_configs[weights.agent].renderer(tokenizer)
    images = renderer.image_prompter.recorded_images
    with contextlib.closing(make_engine(policy, config, params, tokenizer.decode)) as engine:
        yield first, replay_calls(calls[first], engine, images)
        for version in later:
            engine.publish(weights.load(version, policy), version)
            yield version, replay_calls(calls[version], engine, images)


def check_calls(calls: Iterable[Call], vocab_size: int) -> None:
    """Raises UserError where a call cannot have been sampled by a policy of this vocabulary."""
    for call in calls:
        inside = ((call.ids >= 0) & (call.ids < vocab_size)).all()
        if not inside or not len(call.prompt) or len(call.sampler_logp) != len(call.action):
            raise UserError(
                "the trajectory log holds a call without a prompt, with other tokens than the "
                f"vocabulary's {vocab_size:,}, or with log-probs of another number of tokens: "
                "it was changed after the run wrote it"
            )


def selection_text(selection: CallSelection) -> str:
    """How many calls can be sampled again, and why others are left out."""
    reasons = {
        f"without a checkpoint of their weights (steps {ranges_text(selection.without_weights)})": (
            sum(selection.without_weights.values())
        ),
        "during which new weights were published": selection.of_several_versions,
        "without a token": selection.empty,
    }
    left_out = [f"; left out: {count} {reason}" for reason, count in reasons.items() if count]
    return (
        f"{selection.replayable} of {selection.recorded} recorded calls can be sampled again"
        + "".join(left_out)
    )


def ranges_text(numbers: Iterable[int]) -> str:
    """1, 2, 3, 7 -> "1-3, 7" """
    by_offset = itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in pairs] for _, pairs in by_offset]
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in ranges)


def report_text(version: int, report: ReplayReport) -> str:
    """One line on the calls of a version of the weights."""
    return (
        f"weights of step {version}: {report.calls} calls, {report.tokens} tokens, "
        f"{report.matching_tokens} match, largest gap of log-probs {report.max_logp_gap:.2g}"
    )


def mismatch_text(recorded: RecordedCall, mismatch: ReplayMismatch, decode: Any) -> str:
    """Where a call differs, and how; see `draw_margin`."""

    def token_text(token: int | None) -> str:
        return "the end of the call" if token is None else f"{decode([token])!r} ({token})"

    margin = "" if mismatch.margin is None else f", margin {abs(mismatch.margin):.2g} nats"
    return (
        f"first mismatch: task {recorded.task}, step {recorded.step}, sample {recorded.sample}, "
        f"agent {recorded.agent}, turn {recorded.turn}, position {mismatch.position}: "
        f"recorded {token_text(mismatch.recorded)}, "
        f"sampled again {token_text(mismatch.replayed)}{margin}"
    )

"""The names of metrics in metrics.jsonl: the table of docs/metrics.md.

`<...>` in a name stands for one word: `rollout/reward/<part>` is `rollout/reward/format`.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Metric(NamedTuple):
    """A name or pattern of names, its unit ("" where it has none) and its meaning."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class MetricGroup:
    """The metrics that one module computes, its path relative to the package."""

    title: str
    module: str
    metrics: tuple[Metric, ...]
    by_agent: bool = False  # <agent>/<name> where a phase trains several agents


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    """<agent>/return -> [^/]+/return"""
    words = (re.escape(word) for word in re.split("<[a-z ]+>", name))
    return re.compile("[^/]+".join(words))


def _full_names(group: MetricGroup) -> Iterable[str]:
    for metric in group.metrics:
        yield metric.name
        if group.by_agent:
            yield f"<agent>/{metric.name}"


def unknown_metrics(names: Iterable[str], groups: Iterable[MetricGroup]) -> list[str]:
    """The names that no group has, sorted."""
    patterns = [_pattern(name) for group in groups for name in _full_names(group)]
    return sorted(name for name in names if not any(x.fullmatch(name) for x in patterns))


def _episode_metrics(prefix: str) -> tuple[Metric, ...]:
    """Of `rollout_metrics`, whose prefix is `rollout` or `evaluation`."""
    rows = (
        ("return", "reward", "sum of an episode's rewards"),
        ("success", "fraction", "of solved episodes; absent where one does not tell"),
        ("turns", "turns", "of an episode"),
        ("length", "tokens", "of the last call, its prompt and action"),
        ("rows", "sequences", "that an episode is trained on: 1 where its context only grew"),
        ("recomputed", "tokens", "of an episode's prompts that do not extend the call before"),
        ("truncated", "fraction", "of episodes that a limit or an error ended"),
        ("stopped/<reason>", "fraction", "of episodes that ended for this `StopReason`"),
        ("reward/<part>", "reward", "of a named part; an episode without it counts 0"),
        ("dropped", "episodes", "of the step that failed after all retries, in total"),
        ("turns_played", "turns", "of the step, discarded episodes included, in total"),
    )
    return tuple(
        Metric(f"{prefix}{name}", unit, meaning)
        for prefix in (f"{prefix}/", f"{prefix}/<environment>/")
        for name, unit, meaning in rows
    )


def _rows(*rows: tuple[str, str, str]) -> tuple[Metric, ...]:
    return tuple(Metric(*row) for row in rows)


RUN_METRICS = (
    MetricGroup("Episodes", "training/rollout_metrics.py", _episode_metrics("rollout")),
    MetricGroup("Tokens", "training/step_metrics.py", _rows(
        ("rollout/tokens", "tokens", "sampled in the step's episodes, of all processes in total"),
    )),
    MetricGroup("Agents", "training/per_agent.py", _rows(
        ("<agent>/return", "reward", "of the agent's trajectories"),
    )),
    MetricGroup("Evaluation while training", "training/phase_evaluator.py", (
        *_episode_metrics("evaluation"),
        Metric("evaluation/return_interval", "reward", "half-width of its 95 % interval"),
    ), by_agent=True),
    MetricGroup("Failures of environments", "rollout/failures.py", _rows(
        ("env/failures", "attempts", "at episodes that failed in the step, in total"),
        ("env/failed/<kind>", "attempts", "the same, of one `EnvironmentFailure.kind`"),
        ("env/dropped", "episodes", "that were dropped after their retries, in total"),
    )),
    MetricGroup("Tasks from a file", "training/task_file.py", _rows(
        ("tasks/epoch", "epochs", "of the file that were drawn since the phase began"),
        ("tasks/<environment>/epoch", "epochs", "the same, of a member of a mixture"),
    )),
    MetricGroup("Mixtures of tasks", "training/mixture.py", _rows(
        ("tasks/<environment>/fraction", "fraction", "of the step's tasks"),
    )),
    MetricGroup("Asynchronous rollouts", "training/async_rollouts.py", _rows(
        ("stream/oldest", "versions", "by which the step's oldest group lags behind"),
        ("stream/in_flight", "groups", "of this process that are being played"),
        ("stream/waiting", "groups", "of this process that are finished, but not used yet"),
    )),
    MetricGroup("Order of asynchronous groups", "training/consumed_tasks.py", _rows(
        ("stream/overtaking", "groups", "used before one that started earlier"),
        ("stream/turns_used", "turns", "of an episode, over all groups used so far"),
        ("stream/turns_started", "turns", "the same, over those before the first unused group"),
        ("time/group_used", "s", "from a group's start to its end, over all groups used so far"),
        ("time/group_started", "s", "the same, over those before the first unused group"),
    )),
    MetricGroup("Invariants", "training/run_invariants.py", _rows(
        ("invariants/violated", "violations", "of the step, with `--invariants=warn`"),
    )),
    MetricGroup("Times of a step", "training/phase_trainer.py", _rows(
        ("time/seconds", "s", "of the step"),
        ("time/collect", "s", "of its rollouts; of asynchronous ones the trainer's wait"),
        ("time/update", "s", "of its updates"),
        ("time/evaluation", "s", "of the evaluation after it, which is not part of `time/seconds`"),
        ("time/invariants", "s", "of checks of invariants since the last step"),
        ("time/compilations", "programs", "that were compiled in the step"),
    )),
    MetricGroup("Rates and memory", "training/step_timing.py", _rows(
        ("time/tokens_per_second", "tokens/s", "trained tokens by the seconds of the step"),
        ("time/update_tokens_per_second", "tokens/s", "trained tokens by those of the updates"),
        ("time/collect_tokens_per_second", "tokens/s", "sampled tokens by `time/collect`"),
        ("time/memory_peak", "GiB", "of the fullest device, since the start; if devices count it"),
        ("time/memory_limit", "GiB", "that programs may use of this device"),
        ("time/host_memory_peak", "GiB", "of the coordinator's process, since the start"),
    )),
    MetricGroup("Model FLOPs utilization", "training/flops_utilization.py", _rows(
        ("mfu/update", "fraction", "FLOPs of gradient programs by those that a device could do"),
        ("mfu/score", "fraction", "the same, of programs that score given texts"),
        ("mfu/step", "fraction", "of both, by the seconds of the step"),
    )),
)  # fmt: skip
ALGORITHM_METRICS = (
    MetricGroup("Every learner", "learner/learner.py", _rows(
        ("loss", "", "sum of weight times loss over the tokens of an update"),
        ("aux", "", "auxiliary losses of the forward pass, of mixtures of experts"),
        ("gradient_norm", "", "before clipping"),
        ("nonfinite", "fraction", "of updates skipped since gradient or loss was not finite"),
        ("tokens", "tokens", "of actions in the trained sequences, in total"),
    ), by_agent=True),
    MetricGroup("Learning rates", "learner/scheduled_transformation.py", _rows(
        ("learning_rate", "", "of the step's updates"),
        ("learning_rate/<group>", "", "the same, of parameter groups each"),
    ), by_agent=True),
    MetricGroup("Policy gradient: the loss", "algorithms/policy_gradient/device_loss.py", _rows(
        ("policy_loss", "", "of the surrogate, after the importance correction"),
        ("loss/<regularizer>", "", "of a regularizer, its coefficient included"),
        ("entropy", "nats", "of the policy, per token"),
        ("ref_kl", "nats", "k3 estimate of the divergence from the reference policy, per token"),
        ("ratio_outside", "fraction", "of tokens whose ratio is outside exp(-0.2) to exp(0.2)"),
        ("clipped/high", "fraction", "of tokens with advantage > 0 and a ratio over the clip"),
        ("clipped/low", "fraction", "of tokens with advantage < 0 and a ratio below the clip"),
        ("proximal_kl", "nats", "of the policy from before the step, per token; with `max_kl`"),
        ("off_policy/kl", "nats", "k3 of learner and sampler in the first update, per token"),
        ("off_policy/logp_gap", "nats", "between learner's and sampler's log-prob, first update"),
        ("off_policy/trust", "", "importance weight of a token, in the first update"),
        ("off_policy/rejected", "fraction", "of tokens that the correction rejects"),
    ), by_agent=True),
    MetricGroup(
        "Policy gradient: advantages", "algorithms/policy_gradient/credited_batch.py", _rows(
            ("advantage/mean", "", "over trained tokens"),
            ("advantage/std", "", "standard deviation over trained tokens"),
            ("advantage/positive", "fraction", "of trained tokens"),
            ("advantage/turn_<number>", "", "of the trained tokens of a turn, counted from 0"),
            ("tokens/masked", "fraction", "of action tokens that are not trained on"),
            ("tokens/identity", "fraction", "of tokens equal to the recorded ones: always 1"),
            ("groups_with_signal", "fraction", "of groups with an advantage other than 0"),
            ("staleness", "versions", "by which the weights that sampled a token lag behind"),
            ("critic/explained_variance", "", "of the value targets by the critic's values"),
        ), by_agent=True,
    ),
    MetricGroup("Policy gradient: steps", "algorithms/policy_gradient/algorithm.py", _rows(
        ("groups_kept", "fraction", "of groups after filters and replay, by those played"),
        ("skipped", "updates", "without any sequence to train on, in total"),
        ("gradient_spike", "", "gradient norm by its moving average before"),
        ("updates_left_out", "updates", "since the policy left its trust region, in total"),
    ), by_agent=True),
    MetricGroup("Transformed rewards", "algorithms/experience/reward_metrics.py", _rows(
        ("trained_reward", "reward", "return after reward transforms"),
        ("trained_reward/<part>", "reward", "of a named part; an episode without it counts 0"),
    ), by_agent=True),
    MetricGroup("Critics", "algorithms/policy_gradient/critic.py", _rows(
        ("critic/value", "reward", "of the critic, per token"),
        ("critic/value_loss", "", "of the critic, per token"),
        ("critic/loss", "", "`loss` of the critic's updates"),
        ("critic/aux", "", "`aux` of the critic's updates"),
        ("critic/gradient_norm", "", "`gradient_norm` of the critic's updates"),
        ("critic/nonfinite", "fraction", "`nonfinite` of the critic's updates"),
        ("critic/learning_rate", "", "`learning_rate` of the critic's updates"),
        ("critic/learning_rate/<group>", "", "the same, of parameter groups each"),
    ), by_agent=True),
    MetricGroup("ArCHer", "algorithms/archer/algorithm.py", _rows(
        ("replay/turns", "turns", "in the replay buffers of all processes, in total"),
        ("replay/reads_per_turn", "reads", "of the critic's steps by the turns just played"),
        ("kl_from_start", "nats", "of the policy at the iteration's start, per token it played"),
        ("actor_steps", "steps", "of the policy on replayed states, in total"),
        ("advantage/beta", "", "weight of the return in an anchored advantage"),
        ("baseline/value", "reward", "of the actor's token-level critic"),
        ("baseline/value_loss", "", "of the actor's token-level critic"),
    ), by_agent=True),
    MetricGroup("ArCHer's own turns", "algorithms/archer/own_turns.py", _rows(
        ("critic/correlation", "", "of Q - V with G - V, anchored Q - m with G - m; untrained"),
        ("utterances/repeated", "fraction", "of turns that repeat an utterance of their episode"),
        ("advantage/state_share", "fraction", "of the variance of Q - V that is between states"),
    ), by_agent=True),
    MetricGroup("ArCHer's critic", "algorithms/archer/critic_losses.py", _rows(
        ("pretraining/<name>", "", "`critic/<name>` of the steps on demonstrations"),
        ("critic/q", "reward", "of the first Q"),
        ("critic/v", "reward", "of the first V"),
        ("critic/q_loss", "", "of all Q"),
        ("critic/v_loss", "", "of all V"),
    ), by_agent=True),
    MetricGroup("REFUEL, REBEL, DPO", "algorithms/pairwise/algorithm.py", _rows(
        ("pair_loss", "", "of a pair, per token"),
        ("log_ratio", "nats", "absolute difference of a pair's log-ratios to the anchor"),
        ("logp_gap", "nats", "between log-prob and the anchor's, per token"),
        ("first/log_ratio", "nats", "`log_ratio` in the first update"),
        ("first/logp_gap", "nats", "`logp_gap` in the first update"),
        ("agreement", "fraction", "of pairs whose log-ratio has the sign of the rewards"),
        ("pairs", "pairs", "that are trained on, in total"),
        ("pairs/gap", "reward", "absolute difference of a pair's rewards"),
        ("pairs/broken", "pairs", "dropped since an episode is missing or failed, in total"),
        ("pairs/identical", "pairs", "dropped since both episodes are the same, in total"),
    ), by_agent=True),
    MetricGroup("Reward models", "algorithms/pairwise/reward_model.py", _rows(
        ("preference_loss", "", "of a pair"),
        ("accuracy", "fraction", "of pairs whose chosen side has the higher score"),
        ("margin", "reward", "score of the chosen side minus that of the other"),
    ), by_agent=True),
    MetricGroup("ILQL", "algorithms/offline/ilql.py", _rows(
        ("q", "reward", "of the first Q at the action's tokens"),
        ("v", "reward", "of V"),
        ("q_error", "reward", "absolute, of the first Q"),
        ("v_error", "reward", "absolute, of V"),
        ("cross_entropy", "nats", "of the first Q's softmax: the conservative term"),
    ), by_agent=True),
    MetricGroup("UI-TARS-2's flywheel", "algorithms/methods/ui_tars2.py", _rows(
        ("flywheel/passed", "episodes", "in the buffers of successes, in total"),
        ("flywheel/failed", "episodes", "in the buffers of failures, in total"),
        ("flywheel/turns", "turns", "of the flywheel so far"),
        ("flywheel/read_loss", "", "last loss of reading failures"),
        ("flywheel/imitate_loss", "", "last loss of imitating successes"),
    ), by_agent=True),
    MetricGroup("BFS-Prover", "algorithms/methods/expert_iteration.py", _rows(
        ("theorems/solved", "fraction", "of the step's theorems"),
        ("search/expansions_of_a_proof", "expansions", "of a search that found a proof"),
        ("store/pairs", "pairs", "stored by all processes, in total"),
        ("restarts", "", "value of the restarts' `plateau`, 0 without restarts"),
        ("restarts/resolved", "theorems", "solved again and removed at a restart, in total"),
    ), by_agent=True),
    MetricGroup("Verifier examples", "algorithms/strategies/verifier_examples.py", _rows(
        ("verifier/positive", "fraction", "of right answers among this process's examples"),
    )),
)  # fmt: skip
METRIC_GROUPS = (*RUN_METRICS, *ALGORITHM_METRICS)

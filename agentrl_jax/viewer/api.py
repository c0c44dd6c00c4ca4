"""What the page asks of the server, as JSON."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.storage import jsonl
from agentrl_jax.viewer.comparison import differences
from agentrl_jax.viewer.episode_query import parse_query
from agentrl_jax.viewer.run_view import RunView

Parameters = Mapping[str, str]


class NotFound(Exception):
    """There is no such path, run or episode; the message says which."""


def to_json(data: Mapping[str, Any]) -> str:
    """Strict JSON; a number that is not finite, as 1e999 of a record, becomes {"$float": "inf"}.

    Raises:
        UserError: the data are nested too deeply.
    """
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return jsonl.dumps(data, "the record")


def answer(runs: Sequence[RunView], path: str, parameters: Parameters) -> dict[str, Any]:
    """The JSON data of a request.

    Raises:
        NotFound: no such path, run or episode.
        UserError: a parameter of the wrong form.
    """
    if path == "/api/runs":
        return {"runs": [run.description() for run in runs]}
    if path == "/api/compare":
        return compare(runs)
    if path not in _OF_A_RUN:
        raise NotFound("there is no such page")
    return _OF_A_RUN[path](_run(runs, parameters), parameters)


def compare(runs: Sequence[RunView]) -> dict[str, Any]:
    """Where the configs of runs differ, and their summaries side by side."""
    return {
        "config": differences([run.json_file("config.json") for run in runs]),
        "summary": differences([run.json_file("summary.json") for run in runs], False),
    }


def _episode(run: RunView, parameters: Parameters) -> dict[str, Any]:
    episode = run.episode(parameters.get("id", ""))
    if episode is None:
        raise NotFound("there is no such episode: its segment may have been deleted")
    return episode


def _timeline(run: RunView, parameters: Parameters) -> dict[str, Any]:
    try:
        step = float(parameters.get("step", ""))
    except ValueError as error:
        raise UserError("step is a number") from error
    if not math.isfinite(step):
        raise UserError("step is a number")
    return run.timeline(parameters.get("phase", ""), step)


_OF_A_RUN: dict[str, Callable[[RunView, Parameters], Any]] = {
    "/api/episodes": lambda run, parameters: run.episodes(parse_query(parameters)),
    "/api/episode": _episode,
    "/api/timeline": _timeline,
    "/api/metrics": lambda run, _: run.metrics(),
}


def _run(runs: Sequence[RunView], parameters: Parameters) -> RunView:
    text = parameters.get("run", "0")
    index = int(text) if text.isdecimal() and len(text) < 9 else len(runs)
    if index >= len(runs):
        raise NotFound("there is no such run")
    return runs[index]

"""`RemoteEngineConfig`: the server of a remote engine."""

from dataclasses import dataclass, field
from typing import Literal

from agentrl_jax.errors import UserError
from agentrl_jax.external import external


@dataclass
class RemoteEngineConfig:
    """The server of a remote engine, and the limits of its requests."""

    # Requests go to {url}/completions: "http://127.0.0.1:8000/v1".
    url: str = field(metadata=external("server"))
    model: str  # as the server names it
    positions: int  # longest prompt + action: vLLM's --max-model-len
    # Of which distribution the server's log-probs are: "processed", the one sampled from (vLLM
    # --logprobs-mode processed_logprobs); "tempered", before top-k, top-p and min-p (SGLang);
    # "raw", before the temperature too (vLLM's default). Sampling for which they would be wrong is
    # refused. "none": they are not requested, and recorded as NaN (a judge, a simulated user).
    logprobs: Literal["processed", "tempered", "raw", "none"] = "raw"
    api_key_variable: str = ""  # the environment variable that holds the key; empty: no key
    max_concurrent_requests: int = 64
    timeout: float = 300.0  # seconds for a call, including its retries
    retries: int = 4  # after a lost connection, a response 429 or 5xx, or one that breaks off
    backoff: float = 0.5  # seconds before the first retry; doubled for each further one


def validate_remote_config(config: RemoteEngineConfig) -> None:
    """Check the fields.

    Raises:
        UserError: one of them is wrong.
    """
    if not config.url.startswith(("http://", "https://")) or config.url.endswith("/"):
        raise UserError(
            "an endpoint's url starts with http and goes up to /v1, as in "
            f'"http://127.0.0.1:8000/v1": {config.url!r}'
        )
    if config.logprobs not in ("processed", "tempered", "raw", "none"):
        raise UserError(
            f"logprobs of an endpoint are processed, tempered, raw or none: {config.logprobs!r}"
        )
    if (
        min(config.max_concurrent_requests, config.positions) < 1
        or config.timeout <= 0
        or config.retries < 0
        or config.backoff < 0
    ):
        raise UserError(
            "an endpoint needs max_concurrent_requests, positions >= 1, timeout > 0 and retries, "
            f"backoff >= 0: {config}"
        )

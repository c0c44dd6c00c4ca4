"""`ServerLimits`: what a server of the capture endpoint accepts, and how long it waits."""

from dataclasses import dataclass, field, fields
from typing import Any

from agentrl_jax.errors import UserError


def _limit(default: Any, doc: str, minimum: int | float = 1) -> Any:
    return field(default=default, metadata={"doc": doc, "minimum": minimum})


@dataclass
class ServerLimits:
    """The limits of a server; each has a line in docs/endpoint.md."""

    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata={
            "doc": "A name by which clients reach the server, besides the address that it listens "
            "on; may be repeated.",
            "minimum": None,
        },
    )
    max_connections: int = _limit(4096, "Connections that are open at once.")
    max_connections_per_client: int = _limit(512, "Connections of one client address.")
    header_timeout: float = _limit(10.0, "Seconds for the headers of a request to arrive.", 0)
    body_timeout: float = _limit(30.0, "Seconds for the body of a request to arrive.", 0)
    send_timeout: float = _limit(
        30.0, "Seconds for a client to take what is sent; after them it is disconnected.", 0
    )
    idle_timeout: int = _limit(60, "Seconds that a connection stays open between requests.")
    max_request_bytes: int = _limit(16 * 2**20, "Bytes of a request's body.")
    max_json_items: int = _limit(2**19, "Values of a request's JSON.")
    max_json_depth: int = _limit(
        64, "Levels of nesting of a request's JSON, and of a tool call's arguments."
    )
    max_bytes_per_token: int = _limit(
        32, "A text with more bytes for each position of the engine is not tokenized."
    )
    running_requests: int = _limit(
        0, "Completions under way at once; 0: twice as many as the engine has slots.", 0
    )
    max_queued_requests: int = _limit(4096, "Requests that wait for one to end.", 0)
    queue_timeout: float = _limit(300.0, "Seconds that a request waits for that.", 0)
    retry_after: int = _limit(1, "Seconds after which a refused client should ask again.")

    def check(self) -> "ServerLimits":
        """These limits. Raises UserError where one is below its minimum, or a timeout is 0."""
        for f in fields(self):
            minimum, value = f.metadata["minimum"], getattr(self, f.name)
            is_timeout = f.name.endswith("timeout")
            if minimum is not None and (value < minimum or (is_timeout and not 0 < value < 1e9)):
                bound = "above 0 seconds" if is_timeout else f"at least {minimum}"
                raise UserError(f"the server limit {f.name} must be {bound}, not {value}")
        return self

"""`ZygoteSandbox`: snippets in confined processes of this machine, forked from a zygote."""

import threading
import time

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.sandbox.captured_output import (
    capture,
    collect,
    encode_request,
    make_outcome,
)
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import Sandbox, check_snippet
from agentrl_jax.sandbox.snippet import Outcome, Snippet
from agentrl_jax.sandbox.zygote_client import ZygoteClient
from agentrl_jax.sandbox.zygote_protocol import ZygoteConfig
from agentrl_jax.sandbox.zygote_session import ZygoteSession

GRACE_SECONDS = 5.0  # that the zygote has to enforce a deadline; then it is replaced


class ZygoteSandbox(Sandbox):
    """Snippets and sessions behind one zygote, which is started again where it is gone."""

    def __init__(self, config: ZygoteConfig, limits: SandboxLimits) -> None:
        """Starts the zygote.

        Raises:
            UserError: it cannot confine anything here.
        """
        super().__init__(limits)
        self._config, self._lock = config, threading.Lock()
        self.client = ZygoteClient(config)
        self._is_closed = False
        self.description = _description(self.client, bool(config.launcher))

    def running_client(self) -> ZygoteClient:
        """The zygote; a new one where it is gone, or belongs to a process that this one was forked
        from.
        """
        with self._lock:
            if self._is_closed:
                raise UserError("the sandbox is closed: open another one")
            if not self.client.is_running:
                self.client.close()
                self.client = ZygoteClient(self._config)
            return self.client

    def run(self, snippet: Snippet, limits: SandboxLimits | None = None) -> Outcome:
        limits = limits or self.limits
        check_snippet(snippet, limits)
        client, start = self.running_client(), time.monotonic()
        stdin = snippet.stdin.encode(errors="replace")
        process = client.start(encode_request(snippet), stdin, limits)
        try:
            output = capture(process, limits)
            collect(process, output, start + limits.seconds + GRACE_SECONDS)
            seconds = time.monotonic() - start
        finally:
            process.close()
        if process.end is None:
            client.kill()
            raise EnvironmentFailure("the sandbox's zygote did not end a late snippet", "deadline")
        return make_outcome(process, output, limits, seconds)

    def session(self, seed: int = 0, limits: SandboxLimits | None = None) -> ZygoteSession:
        return ZygoteSession(self.running_client, seed, limits or self.limits)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.client.close()


def _description(client: ZygoteClient, in_bubblewrap: bool) -> str:
    """What protects snippets, in words."""
    own_user, user_namespace, private_folder = client.isolation
    parts = ["seccomp"]
    if client.abi:
        parts.insert(0, f"Landlock {client.abi}")
    if in_bubblewrap:
        parts.insert(0, "namespaces")
    if own_user or user_namespace:
        kind = "user id" if own_user else "user namespace"
        parts.append(f"a {kind} each")
    else:
        parts.append("neither processes nor threads")
    parts.append("a folder in memory each" if private_folder else "a folder on disk each")
    return ", ".join(parts)

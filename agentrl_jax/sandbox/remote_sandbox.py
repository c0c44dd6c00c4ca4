"""`RemoteSandbox`: a server with SandboxFusion's `/run_code`."""

import base64
import functools
import os
import time
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import ReplayedSession, Sandbox, check_snippet
from agentrl_jax.sandbox.snippet import Outcome, Snippet, limit_of_error

MAX_RESPONSE_BYTES = 2**24
GRACE_SECONDS = 30.0  # beyond a snippet's time, for the server's queue
_RETRIES = 2


class RemoteSandbox(Sandbox):
    """Snippets on a server; sessions run all earlier code again.

    The server enforces its own limits: of ours it is sent the time and the memory.
    """

    def __init__(self, url: str, limits: SandboxLimits, key_variable: str = "") -> None:
        """Sends nothing yet.

        Args:
            url: requests go to {url}/run_code.
            limits: of a snippet.
            key_variable: the environment variable that holds the key for the header
                `Authorization`; empty: none.

        Raises:
            UserError: the key is missing.
        """
        super().__init__(limits)
        self._url = url.rstrip("/")
        key = os.environ.get(key_variable, "") if key_variable else ""
        if key_variable and not key:
            raise UserError(f"{key_variable} should hold the key of {url}: set it")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.description = f"{self._url}/run_code, whose own limits hold"

    def run(self, snippet: Snippet, limits: SandboxLimits | None = None) -> Outcome:
        limits = limits or self.limits
        check_snippet(snippet, limits)
        body = {
            "code": snippet.code,
            "language": snippet.language.name,
            "stdin": snippet.stdin,
            "run_timeout": limits.seconds,
            "compile_timeout": limits.seconds,
            "memory_limit_MB": limits.memory_mb,
            "files": {
                path: base64.b64encode(data).decode() for path, data in snippet.files.items()
            },
        }
        start = time.monotonic()
        response = self._post(body, limits.seconds + GRACE_SECONDS)
        return self._outcome(response, limits, time.monotonic() - start)

    def session(self, seed: int = 0, limits: SandboxLimits | None = None) -> ReplayedSession:
        return ReplayedSession(self, seed, limits)

    def _post(self, body: dict[str, Any], seconds: float) -> Any:
        """The response's JSON. Lost connections and errors of the server are tried again."""
        httpx2, client = _http()
        deadline, problem = time.monotonic() + seconds, ""
        for attempt in range(_RETRIES + 1):
            try:
                reply = client.post(
                    f"{self._url}/run_code",
                    json=body,
                    headers=self._headers,
                    timeout=max(0.1, deadline - time.monotonic()),
                )
            except httpx2.TimeoutException:
                raise DeadlineExceeded(f"no answer from {self._url} in {seconds:g} s") from None
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
                raise UserError(f"the sandbox's url {self._url!r} is none: {error}") from error
            except httpx2.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if reply.status_code == 200 and len(reply.content) <= MAX_RESPONSE_BYTES:
                    return _json_of(reply)
                problem = f"it answered {reply.status_code}: {reply.text[:300]}"
                if reply.status_code != 429 and reply.status_code < 500:
                    raise UserError(f"{self._url} refuses a snippet: {problem}")
            time.sleep(min(0.5 * 2**attempt, max(0.0, deadline - time.monotonic())))
        raise EnvironmentFailure(f"{self._url} failed {_RETRIES + 1} times, at last: {problem}")

    def _outcome(self, response: Any, limits: SandboxLimits, seconds: float) -> Outcome:
        """Raises EnvironmentFailure where the server did not run the snippet."""
        try:
            if response["status"] == "SandboxError":
                raise EnvironmentFailure(f"{self._url} failed: {response.get('message')!s:.300}")
            result = response["run_result"] or response["compile_result"]
            stdout, stderr = result["stdout"] or "", result["stderr"] or ""
            is_late = result["status"] == "TimeLimitExceeded"
            code = None if result["return_code"] is None else int(result["return_code"])
            seconds = float(result.get("execution_time") or seconds)
        except (KeyError, TypeError, ValueError) as error:
            raise EnvironmentFailure(
                f"the answer of {self._url} has not SandboxFusion's form: {response!r:.300}"
            ) from error
        is_flood = len(stdout) + len(stderr) >= limits.output_kb * 1024
        stdout = stdout[: limits.output_kb * 1024]
        stderr = stderr[: limits.output_kb * 1024 - len(stdout)]
        limit = "output" if is_flood else "time" if is_late else None
        if limit is None and code:
            limit = limit_of_error(stderr)
        if code is not None and code < 0:
            return Outcome(stdout, stderr, None, -code, limit, seconds)
        return Outcome(stdout, stderr, None if is_late else code, None, limit, seconds)


def _json_of(reply: Any) -> Any:
    try:
        return reply.json()
    except ValueError:
        raise EnvironmentFailure(f"the sandbox's answer is no JSON: {reply.text[:300]}") from None


@functools.cache
def _http() -> tuple[Any, Any]:
    """The HTTP library, imported where it is used, and the one client of this process."""
    try:
        import httpx2
    except ImportError as error:
        raise UserError("a remote sandbox needs the package httpx2: install it") from error
    import atexit

    client = httpx2.Client()
    atexit.register(client.close)
    return httpx2, client

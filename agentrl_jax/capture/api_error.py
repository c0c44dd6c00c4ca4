"""`APIError`: an error as OpenAI's API reports it."""

from typing import Any


class APIError(Exception):
    """An error that is returned as an OpenAI error body."""

    def __init__(
        self,
        message: str,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.retry_after = retry_after  # seconds after which the client should ask again

    def headers(self) -> dict[str, str]:
        """Headers of the response; a body that was not read to its end closes the connection."""
        retry = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return {**retry, **({"connection": "close"} if self.status in (408, 413) else {})}

    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        }

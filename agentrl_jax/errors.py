"""The package's exceptions, by who must act on them."""


class UserError(Exception):
    """Invalid input of the user; the message is one sentence that says what to do."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM asked the run to stop; everything is saved."""


class ProcessMissing(Exception):
    """Another process of the run did not reach a barrier; the message names it."""


class EnvironmentFailure(Exception):
    """An environment or its worker failed.

    The episode is retried in a fresh environment, or dropped and counted; it is never scored as 0.
    `kind` classifies the failure: the environment "raised", it returned "nonsense" or a "flood", it
    ran out of "memory", its worker "died" while stepping it, the environment was "lost" because
    another one's failure replaced their worker, an agent program left its episode "unscored", or a
    named model's answer is "malformed".
    """

    def __init__(self, message: str, kind: str = "raised") -> None:
        super().__init__(message)
        self.kind = kind


class DeadlineExceeded(EnvironmentFailure):
    """A wait exceeded its timeout; the message names what was awaited."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "deadline")

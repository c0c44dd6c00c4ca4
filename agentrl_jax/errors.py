"""What can go wrong, by who must act on it."""


class UserError(Exception):
    """Something the user typed or handed in is wrong; the message is one sentence that says what to do."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM asked the run to stop; everything is saved."""


class HostMissing(Exception):
    """Another process of the run did not come to where all must meet; the message names it."""


class EnvironmentFailure(Exception):
    """A world or its worker went wrong; the episode is played again in a fresh world, or dropped and counted, never scored as 0.

    `kind` says how: it "raised", its answer was "nonsense" or a "flood", it ran out of "memory", its worker "died" while it was at
    work on this world, the world was "lost" because its worker had to be replaced on another's account, or an episode of an agent
    program was left "unscored".
    """

    def __init__(self, message: str, kind: str = "raised") -> None:
        super().__init__(message)
        self.kind = kind


class DeadlineExceeded(EnvironmentFailure):
    """A wait ran past its deadline; the message names who was waited for."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "deadline")

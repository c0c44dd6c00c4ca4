"""What can go wrong, by who must act on it."""


class UserError(Exception):
    """Something the user typed or handed in is wrong; the message is one sentence that says what to do."""


class EnvironmentFailure(Exception):
    """An environment raised or its worker died; the episode is retried with a fresh world, never scored as 0."""


class DeadlineExceeded(EnvironmentFailure):
    """A wait ran past its deadline; the message names who was waited for."""

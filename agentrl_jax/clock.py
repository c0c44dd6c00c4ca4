"""The time of events: seconds since the Unix epoch, by a clock that never goes back."""

import time

_EPOCH_OF_MONOTONIC = time.time() - time.monotonic()  # read once: later changes of the date are not


def epoch_seconds() -> float:
    """Now, in seconds since the Unix epoch, to the microsecond.

    The monotonic clock, which was set by the date when the process started: two times of a process
    differ by the time between them, whatever happens to the machine's date meanwhile.
    """
    return round(_EPOCH_OF_MONOTONIC + time.monotonic(), 6)

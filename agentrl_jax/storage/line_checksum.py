"""The checksum at the end of each line of a run's records, by which a changed bit is found.

    {"phase": "rl", "step": 3, "loss": 0.5, "crc32": "1c291ca3"}

It is the CRC-32 of what precedes it, in hexadecimal.
"""

import zlib

_KEY = b', "crc32": "'
_END = b'"}'
_LENGTH = len(_KEY) + 8 + len(_END)


def add_checksum(text: str) -> str:
    """A JSON object that is not empty, with its checksum as the last field."""
    body = text[:-1].encode()
    return f"{text[:-1]}{_KEY.decode()}{zlib.crc32(body):08x}{_END.decode()}"


def without_checksum(line: bytes) -> bytes:
    """The JSON of a line without checksum; a line that has none as it is.

    Raises:
        ValueError: the checksum is that of another line, or a byte around it is another one.
    """
    text = line.rstrip(b"\n")
    body, tail = text[:-_LENGTH], text[-_LENGTH:]
    wrong = _num_differences(tail[: len(_KEY)], _KEY) + _num_differences(tail[-len(_END) :], _END)
    if len(tail) < _LENGTH or wrong > 1:
        return line
    if wrong or tail[len(_KEY) : -len(_END)] != b"%08x" % zlib.crc32(body):
        raise ValueError("it is not as it was written: its checksum differs")
    return body + b"}"


def _num_differences(a: bytes, b: bytes) -> int:
    """How many bytes of two equally long texts differ."""
    return 0 if a == b else sum(x != y for x, y in zip(a, b))

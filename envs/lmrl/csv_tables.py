"""The tables of facts that lie next to an environment's code."""

import csv
from importlib.resources import files


def read_csv(package: str, name: str, delimiter: str = ",") -> list[dict[str, str]]:
    """The rows of a CSV file of a package, by the names in its header."""
    text = files(package).joinpath(name).read_text(encoding="ascii")
    return list(csv.DictReader(text.splitlines(), delimiter=delimiter))

"""Cities and what is known of each: facts of its own and facts of its country."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

DEGREES_OF_A_ZONE = 15


@dataclass(frozen=True)
class City:
    """`facts` are words that never name the city or its country; `marks` are C capital, S seaside, M mountains, T metro."""

    names: tuple[str, ...]  # ("Mumbai", "Bombay")
    countries: tuple[str, ...]  # the names of its country
    latitude: float
    longitude: float
    million: float  # inhabitants, with the suburbs
    marks: str
    facts: Mapping[str, str]

    @property
    def word(self) -> str:
        """As LMRL-Gym lists it: "paris,france"."""
        return f"{self.names[0]},{self.countries[0]}".lower()


def _rows(name: str) -> list[dict[str, str]]:
    text = files("agentrl_jax.envs.lmrl.guess_city").joinpath(name).read_text(encoding="ascii")
    return list(csv.DictReader(text.splitlines(), delimiter="|"))


def _inhabitants(million: float) -> str:
    return f"about {million:g} million people" if million >= 1 else f"about {million * 1000:g} thousand people"


def _city(row: dict[str, str], country: dict[str, str]) -> City:
    latitude, longitude, million, marks = float(row["latitude"]), float(row["longitude"]), float(row["million"]), row["marks"]
    zone, altitude = round(longitude / DEGREES_OF_A_ZONE), int(row["altitude"])
    facts = {
        **{
            name: country[name]
            for name in ("continent", "region", "currency", "religion", "driving", "government", "flag", "dish", "sport")
        },
        **{name: row[name] for name in ("olympics", "water", "climate", "age", "landmark", "known", "industry", "district")},
        "language": row["own language"] or country["language"],
        "hemisphere": "northern" if latitude > 0 else "southern",
        "latitude": f"about {abs(latitude):.0f} degrees {'north' if latitude > 0 else 'south'}",
        "noon": f"{abs(zone)} hours {'ahead of' if zone > 0 else 'behind'} Greenwich" if zone else "about the same as in Greenwich",
        "population": _inhabitants(million),
        "altitude": f"about {altitude} meters above the sea" if altitude > 0 else "not above the sea at all",
        **{name: "yes" if mark in marks else "no" for name, mark in (("capital", "C"), ("coast", "S"), ("mountains", "M"), ("metro", "T"))},
    }
    return City(tuple(row["city"].split(";")), tuple(country["country"].split(";")), latitude, longitude, million, marks, facts)


@cache
def cities() -> tuple[City, ...]:
    """All cities, those of a continent together."""
    countries = {row["country"].split(";")[0]: row for row in _rows("countries.csv")}
    return tuple(_city(row, countries[row["country"]]) for row in _rows("cities.csv"))

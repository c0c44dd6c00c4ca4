"""Cities and their facts, own ones and those of their countries."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from agentrl_jax.envs.lmrl.csv_tables import read_csv

DEGREES_PER_TIME_ZONE = 15


@dataclass(frozen=True)
class City:
    """`facts` never name the city or its country.

    `feature_marks` are C capital, S seaside, M mountains, T metro.
    """

    names: tuple[str, ...]  # ("Mumbai", "Bombay")
    countries: tuple[str, ...]  # the names of its country
    latitude: float
    longitude: float
    population_millions: float  # with suburbs
    feature_marks: str
    facts: Mapping[str, str]

    @property
    def listed_name(self) -> str:
        """As LMRL-Gym lists it: "paris,france"."""
        return f"{self.names[0]},{self.countries[0]}".lower()


def _population_text(millions: float) -> str:
    return (
        f"about {millions:g} million people"
        if millions >= 1
        else f"about {millions * 1000:g} thousand people"
    )


def _make_city(row: dict[str, str], country: dict[str, str]) -> City:
    latitude, longitude, million, marks = (
        float(row["latitude"]),
        float(row["longitude"]),
        float(row["million"]),
        row["marks"],
    )
    zone, altitude = round(longitude / DEGREES_PER_TIME_ZONE), int(row["altitude"])
    facts = {
        **{
            name: country[name]
            for name in (
                "continent",
                "region",
                "currency",
                "religion",
                "driving",
                "government",
                "flag",
                "dish",
                "sport",
            )
        },
        **{
            name: row[name]
            for name in (
                "olympics",
                "water",
                "climate",
                "age",
                "landmark",
                "known",
                "industry",
                "district",
            )
        },
        "language": row["own language"] or country["language"],
        "hemisphere": "northern" if latitude > 0 else "southern",
        "latitude": f"about {abs(latitude):.0f} degrees {'north' if latitude > 0 else 'south'}",
        "noon": f"{abs(zone)} hours {'ahead of' if zone > 0 else 'behind'} Greenwich"
        if zone
        else "about the same as in Greenwich",
        "population": _population_text(million),
        "altitude": f"about {altitude} meters above the sea"
        if altitude > 0
        else "not above the sea at all",
        **{
            name: "yes" if mark in marks else "no"
            for name, mark in (("capital", "C"), ("coast", "S"), ("mountains", "M"), ("metro", "T"))
        },
    }
    return City(
        tuple(row["city"].split(";")),
        tuple(country["country"].split(";")),
        latitude,
        longitude,
        million,
        marks,
        facts,
    )


@cache
def cities() -> tuple[City, ...]:
    """All cities, grouped by continent."""
    package = "agentrl_jax.envs.lmrl.guess_city"
    country_rows = read_csv(package, "countries.csv", delimiter="|")
    countries = {row["country"].split(";")[0]: row for row in country_rows}
    return tuple(
        _make_city(row, countries[row["country"]])
        for row in read_csv(package, "cities.csv", delimiter="|")
    )

"""Household problems in ALFWorld's PDDL, generated from the floor plans of its package."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.errors import UserError

# Task family -> what an object must allow, the receptacle that does it, and the goal's predicate.
FAMILIES: Mapping[str, tuple[str, str, str]] = {
    "pick_and_place_simple": ("", "", ""),
    "look_at_obj_in_light": ("", "", ""),
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin", "isClean"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave", "isHot"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge", "isCool"),
    "pick_two_obj_and_place": ("", "", ""),
}
# Split -> the floor plans of each kind of room (numbers modulo 100) and the first number of a game.
SPLITS: Mapping[str, tuple[range, int]] = {
    "train": (range(7, 31), 0),
    "seen": (range(7, 31), 10**9),
    "unseen": (range(1, 7), 2 * 10**9),
}
# Kind of room -> the numbers of its floor plans begin there.
ROOMS: Mapping[str, int] = {"kitchen": 0, "living_room": 200, "bedroom": 300, "bathroom": 400}
_MAX_DRAWS = 10_000  # the rarest tasks are possible in one of 16 draws
_TYPES = ("SinkBasin", "Microwave", "Fridge")  # named in the rules, whether they are there or not
_LAMP = "DeskLamp"
_LAMP_PLACES = ("Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf")


@dataclass(frozen=True)
class Problem:
    """A task in a room. Names of things are those of the PDDL problem."""

    family: str
    target: str  # the type of the object
    place: str  # the type of the receptacle
    floor_plan: int
    receptacles: Mapping[str, str]  # name -> type
    objects: Mapping[str, tuple[str, str]]  # name -> type, and the receptacle in which it is

    @property
    def description(self) -> str:
        """The task in the package's words."""
        target, place = self.target.lower(), self.place.lower()
        return {
            "pick_and_place_simple": f"put some {target} on {place}",
            "look_at_obj_in_light": f"look at {target} under the {_LAMP.lower()}",
            "pick_clean_then_place_in_recep": f"put a clean {target} in {place}",
            "pick_heat_then_place_in_recep": f"put a hot {target} in {place}",
            "pick_cool_then_place_in_recep": f"put a cool {target} in {place}",
            "pick_two_obj_and_place": f"put two {target} in {place}",
        }[self.family]


def generated_problem(
    rng: np.random.Generator,
    families: Sequence[str],
    split: str,
    num_objects: int,
    rooms: Sequence[str] = tuple(ROOMS),
) -> Problem:
    """A problem of one of the families in a floor plan of the split.

    Args:
        rng: determines the problem.
        families: of `FAMILIES`.
        split: of `SPLITS`.
        num_objects: beside those that the task is about.
        rooms: of `ROOMS`.

    Raises:
        UserError: a family has no task in these rooms, as heating has in no bathroom.
    """
    constants = import_package("alfworld.gen.constants", "alfworld")
    family = families[int(rng.integers(len(families)))]
    ability, appliance, _ = FAMILIES[family]
    is_light = family == "look_at_obj_in_light"
    for _ in range(_MAX_DRAWS):
        plan = int(rng.choice([ROOMS[room] for room in rooms])) + int(
            rng.choice(list(SPLITS[split][0]))
        )
        receptacles, kinds = _floor_plan(plan)
        types = sorted(set(receptacles.values()))
        fits = {t: constants.VAL_RECEPTACLE_OBJECTS[t] for t in types}
        portable = [kind for kind in kinds if any(kind in fits[t] for t in types)]
        needed = constants.VAL_ACTION_OBJECTS[ability] if ability else set(portable)
        targets = [kind for kind in portable if kind in needed]
        stands = [name for name, kind in receptacles.items() if kind in _LAMP_PLACES]
        has_lamp = _LAMP in kinds and bool(stands)
        if not targets or (appliance and appliance not in types) or (is_light and not has_lamp):
            continue
        target = str(rng.choice(targets))
        places = [t for t in types if target in fits[t] and t != appliance]
        place = "" if is_light else str(rng.choice(places)) if places else None
        sources = [name for name, t in receptacles.items() if target in fits[t] and t != place]
        if place is None or not sources:
            continue
        objects = dict[str, tuple[str, str]]()
        for _ in range(2 if family == "pick_two_obj_and_place" else 1):
            _put(rng, objects, target, sources)
        if has_lamp:
            _put(rng, objects, _LAMP, stands)
        others = [kind for kind in portable if kind != target]
        for kind in rng.choice(others, size=num_objects if others else 0):
            places = [name for name, t in receptacles.items() if kind in fits[t]]
            _put(rng, objects, str(kind), places)
        return Problem(family, target, place, plan, receptacles, objects)
    raise UserError(f"ALFWorld has no task {family} in the rooms {', '.join(rooms)}")


def _put(
    rng: np.random.Generator,
    objects: dict[str, tuple[str, str]],
    kind: str,
    receptacles: Sequence[str],
) -> None:
    name = f"{kind.lower()}_bar_{len(objects)}"
    objects[name] = kind, receptacles[int(rng.integers(len(receptacles)))]


@functools.cache
def _floor_plan(number: int) -> tuple[dict[str, str], list[str]]:
    """The receptacles of a floor plan by name, and the types of things that are there."""
    package = import_package("alfworld.gen.constants", "alfworld")
    folder = Path(str(package.__file__)).parent / "layouts"
    listed = json.loads((folder / f"FloorPlan{number}-openable.json").read_text(encoding="utf-8"))
    kinds = json.loads((folder / f"FloorPlan{number}-objects.json").read_text(encoding="utf-8"))
    receptacles = {}
    for i, key in enumerate(sorted(listed)):
        kind = key.split("|")[0]
        basin = "Basin" if key.endswith("Basin") else ""
        if kind + basin in package.VAL_RECEPTACLE_OBJECTS:
            # The package's names of things add "basin" where a name has it after "_bar_".
            receptacles[f"{kind.lower()}_bar_{i}{basin.lower()}"] = kind + basin
    return receptacles, sorted(kinds)


def pddl_problem(problem: Problem) -> str:
    """The problem in PDDL, for the package's domain."""
    constants = import_package("alfworld.gen.constants", "alfworld")
    at = {name: f"loc_bar_{i + 1}" for i, name in enumerate(problem.receptacles)}
    types = sorted({*problem.receptacles.values(), *_TYPES})
    kinds = sorted({kind for kind, _ in problem.objects.values()} | {"Knife", "ButterKnife"})
    declared = [
        ("agent1", "agent"),
        *((name, "location") for name in ["loc_bar_0", *at.values()]),
        *((name, "receptacle") for name in problem.receptacles),
        *((name, "object") for name in problem.objects),
        *((f"{name}Type", "rtype") for name in types),
        *((f"{name}Type", "otype") for name in kinds),
    ]
    facts = ["atLocation agent1 loc_bar_0"]
    for name, kind in problem.receptacles.items():
        facts += [f"receptacleAtLocation {name} {at[name]}", f"receptacleType {name} {kind}Type"]
        facts += [f"openable {name}"] * (kind in constants.OPENABLE_CLASS_LIST)
    for name, (kind, inside) in problem.objects.items():
        facts += [f"objectType {name} {kind}Type", f"inReceptacle {name} {inside}"]
        facts += [f"objectAtLocation {name} {at[inside]}"]
        facts += [f"{'toggleable' if kind == _LAMP else 'pickupable'} {name}"]
        facts += [
            f"{ability.lower()} {name}"
            for ability in ("Cleanable", "Heatable", "Coolable")
            if kind in constants.VAL_ACTION_OBJECTS[ability]
        ]
    for place in sorted(set(problem.receptacles.values())):
        fitting = constants.VAL_RECEPTACLE_OBJECTS[place]
        facts += [f"canContain {place}Type {kind}Type" for kind in kinds if kind in fitting]
    listed = "\n".join(f"{name} - {kind}" for name, kind in declared)
    stated = "\n".join(f"({fact})" for fact in facts)
    return (
        f"(define (problem household)\n(:domain alfred)\n(:objects\n{listed}\n)\n"
        f"(:init\n(= (total-cost) 0)\n{stated}\n)\n(:goal {_goal(problem)})\n"
        "(:metric minimize (total-cost))\n)\n"
    )


def _goal(problem: Problem) -> str:
    target, place = f"{problem.target}Type", f"{problem.place}Type"
    if problem.family == "look_at_obj_in_light":
        return (
            "(and (exists (?t - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?t {_LAMP}Type) (toggleable ?t) (isToggled ?t) (inReceptacle ?t ?r) "
            "(receptacleAtLocation ?r ?l) (atLocation ?a ?l))) (exists (?o - object ?a - agent) "
            f"(and (objectType ?o {target}) (holds ?a ?o))))"
        )
    inside = f"(objectType ?o {target}) (receptacleType ?r {place}) (inReceptacle ?o ?r)"
    if problem.family == "pick_two_obj_and_place":
        second = f"(not (= ?o ?p)) (objectType ?p {target}) (inReceptacle ?p ?r)"
        both = f"(and {inside} {second})"
        return f"(exists (?r - receptacle ?o - object ?p - object) {both})"
    predicate = FAMILIES[problem.family][2]
    state = f" ({predicate} ?o)" if predicate else ""
    return f"(exists (?r - receptacle ?o - object) (and {inside}{state}))"


def game_data(problem: Problem) -> dict[str, Any]:
    """What the package's engine loads."""
    info = import_package("alfworld.info", "alfworld")
    grammar = Path(info.ALFRED_TWL2_PATH).read_text(encoding="utf-8")
    return {
        "pddl_domain": Path(info.ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
        "grammar": grammar.replace("UNKNOWN GOAL", problem.description),
        "pddl_problem": pddl_problem(problem),
    }

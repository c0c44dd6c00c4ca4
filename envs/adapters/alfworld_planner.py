"""Commands that accomplish a household task of ALFWorld, from its hidden state."""

from collections.abc import Container, Iterator, Mapping, Sequence, Set

from agentrl_jax.envs.adapters.alfworld_problems import FAMILIES, Problem

Facts = Set[tuple[str, ...]]


def next_command(problem: Problem, facts: Facts, names: Mapping[str, str]) -> str | None:
    """The next command of a plan, in the engine's words.

    The plan fetches an object of the task, changes its state where the task asks for it, and brings
    it to the receptacle (or to the lamp, which it then uses).

    Args:
        problem: the task.
        facts: of the present state.
        names: of the things as the commands have them.

    Returns:
        The command; None where the facts do not say in which receptacle the next object is.
    """
    return next(_commands(problem, facts, names), None)


def facts_seen(facts: Facts, names: Mapping[str, str], issued: Container[str]) -> Facts:
    """The facts without the contents of receptacles that no command has shown.

    Args:
        facts: of the present state.
        names: of the things as the commands have them.
        issued: the commands of the episode so far.
    """
    can_be_shut = {fact[1] for fact in facts if fact[0] == "openable"}
    visible = {
        thing
        for thing, name in names.items()
        if f"open {name}" in issued or (f"go to {name}" in issued and thing not in can_be_shut)
    }
    return {fact for fact in facts if fact[0] != "inreceptacle" or fact[2] in visible}


def unseen_receptacles(commands: Sequence[str], issued: Container[str]) -> list[str]:
    """The possible commands that show the inside of a receptacle for the first time.

    Where the receptacle in front of the agent is closed, only opening it does.

    Args:
        commands: those that are possible.
        issued: those of the episode so far.
    """
    new = [command for command in commands if command not in issued]
    opening = [command for command in new if command.startswith("open ")]
    return opening or [command for command in new if command.startswith("go to ")]


def _commands(problem: Problem, facts: Facts, names: Mapping[str, str]) -> Iterator[str]:
    """Commands of which the first is the next one: each is yielded where it has an effect."""
    inside = {fact[1]: fact[2] for fact in facts if fact[0] == "inreceptacle"}
    carried = [fact[2] for fact in facts if fact[0] == "holds"]
    kinds = {name: kind for name, (kind, _) in problem.objects.items()}
    targets = [name for name, kind in kinds.items() if kind == problem.target]
    places = [name for name, kind in problem.receptacles.items() if kind == problem.place]
    _, appliance, predicate = FAMILIES[problem.family]
    verb = {"isClean": "clean", "isHot": "heat", "isCool": "cool"}.get(predicate, "")

    def is_ready(name: str) -> bool:
        return not predicate or (predicate.lower(), name) in facts

    def at(receptacle: str, is_opened: bool) -> Iterator[str]:
        location = next(
            f[2] for f in facts if f[0] == "receptacleatlocation" and f[1] == receptacle
        )
        if ("atlocation", "agent1", location) not in facts:
            yield f"go to {names[receptacle]}"
        is_shut = ("openable", receptacle) in facts and ("opened", receptacle) not in facts
        if is_opened and is_shut:
            yield f"open {names[receptacle]}"

    if carried and carried[0] not in targets:  # nothing of the task: to where it was at first
        origin = problem.objects[carried[0]][1]
        yield from at(origin, True)
        yield f"move {names[carried[0]]} to {names[origin]}"
    # All copies go to one receptacle, where the most of them are already.
    done = {p: [t for t in targets if inside.get(t) == p and is_ready(t)] for p in places}
    place = max(places, key=lambda p: len(done[p])) if places else ""
    if not carried:
        left = [t for t in targets if t in inside and t not in done.get(place, [])]
        if not left:
            return
        yield from at(inside[left[0]], True)
        yield f"take {names[left[0]]} from {names[inside[left[0]]]}"
    if not is_ready(carried[0]):
        tool = next(name for name, kind in problem.receptacles.items() if kind == appliance)
        yield from at(tool, False)
        yield f"{verb} {names[carried[0]]} with {names[tool]}"
    if not place:
        lamp = next(name for name, kind in kinds.items() if kind == "DeskLamp")
        if lamp not in inside:
            return
        yield from at(inside[lamp], False)
        yield f"use {names[lamp]}"
    yield from at(place, True)
    yield f"move {names[carried[0]]} to {names[place]}"

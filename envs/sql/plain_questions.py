"""Templates of questions on one table, and on joined tables."""

from fractions import Fraction

from agentrl_jax.envs.sql.schema import literal
from agentrl_jax.envs.sql.templates import Draft, Scene, euros, rounded


def items_of_category(scene: Scene) -> Draft | None:
    """How many items are of a category?"""
    business, field = scene.business, scene.schema.field
    kind = scene.item().category
    return scene.draft(
        f"How many {business.item.plural} have the {business.category} {kind}?",
        "COUNT(*)",
        ("item", "category"),
        f"WHERE {field('category')} = {literal(kind)}",
        [(sum(item.category == kind for item in scene.records.items),)],
        kind,
    )


def actors_of_city(scene: Scene) -> Draft | None:
    """Who lives in a city?"""
    business, field = scene.business, scene.schema.field
    city = scene.actor().city
    return scene.draft(
        f"What are the names of the {business.actor.plural} from {city}?",
        field("actor"),
        ("actor", "city"),
        f"WHERE {field('city')} = {literal(city)}",
        [(actor.name,) for actor in scene.records.actors if actor.city == city],
        city,
    )


def size_of_item(scene: Scene) -> Draft | None:
    """How large is an item?"""
    business, field = scene.business, scene.schema.field
    item, measure = scene.item(), scene.business.measure
    return scene.draft(
        f"What is the {measure.name} of the {business.item.singular} {item.name}, in "
        f"{measure.large}?",
        field("size"),
        ("item",),
        f"WHERE {field('item')} = {literal(item.name)}",
        [(item.size / measure.factor,)],
        item.name,
    )


def actors_joined_before(scene: Scene) -> Draft | None:
    """How many people of a city came before a year?"""
    business, field = scene.business, scene.schema.field
    actor, year = scene.actor(), int(scene.rng.integers(2012, 2020))
    return scene.draft(
        f"How many {business.actor.plural} from {actor.city} joined before {year}?",
        "COUNT(*)",
        ("actor", "city"),
        f"WHERE {field('city')} = {literal(actor.city)} AND {field('joined')} < {year}",
        [(sum(a.city == actor.city and a.joined < year for a in scene.records.actors),)],
        actor.city,
    )


def dear_items(scene: Scene) -> Draft | None:
    """Which items of a category cost more than so much?"""
    business, field = scene.business, scene.schema.field
    item = scene.item()
    cents = max(100, item.cents - item.cents % 100)
    return scene.draft(
        f"Which {business.item.plural} with the {business.category} {item.category} have a "
        f"{business.price} of more than {cents // 100} euros?",
        field("item"),
        ("item", "category"),
        f"WHERE {field('category')} = {literal(item.category)} AND "
        f"{field('price')} > {cents // 100}",
        [(i.name,) for i in scene.records.items if i.category == item.category and i.cents > cents],
        item.category,
    )


def events_of_actor_in_year(scene: Scene) -> Draft | None:
    """How many events had a person in a year?"""
    business, field = scene.business, scene.schema.field
    event = scene.event()
    name, year = event.actor.name, event.year
    return scene.draft(
        f"How many {business.event.plural} did the {business.actor.singular} {name} have in "
        f"{year}?",
        "COUNT(*)",
        ("event", "actor"),
        f"WHERE {field('actor')} = {literal(name)} AND {field('year')} = {year}",
        [(sum(e.actor.name == name and e.year == year for e in scene.events),)],
        name,
    )


def cost_of_actor(scene: Scene) -> Draft | None:
    """What did a person pay in all?"""
    business, field = scene.business, scene.schema.field
    name = scene.event().actor.name
    return scene.draft(
        f"What are the total {business.cost} of all {business.event.plural} of the "
        f"{business.actor.singular} {name}, in euros? They are the number of "
        f"{business.quantity} times the {business.price}.",
        f"SUM({field('cost')})",
        ("event", "actor", "item"),
        f"WHERE {field('actor')} = {literal(name)}",
        [(euros(sum(e.cents for e in scene.events if e.actor.name == name)),)],
        name,
    )


def status_in_city(scene: Scene) -> Draft | None:
    """How many events of a city's people have a status?"""
    business, field = scene.business, scene.schema.field
    event = scene.event()
    city, status = event.actor.city, event.status
    return scene.draft(
        f"How many {business.event.plural} of {business.actor.plural} from {city} are {status}?",
        "COUNT(*)",
        ("event", "actor", "city", "status"),
        f"WHERE {field('city')} = {literal(city)} AND {scene.schema.is_status(status)}",
        [(sum(e.actor.city == city and e.status == status for e in scene.events),)],
        city,
    )


def items_used_in_city(scene: Scene) -> Draft | None:
    """Which items had people of a city in a year?"""
    business, field = scene.business, scene.schema.field
    event = scene.event()
    city, year = event.actor.city, event.year
    names = {e.item.name for e in scene.events if e.actor.city == city and e.year == year}
    return scene.draft(
        f"Which different {business.item.plural} occur in {business.event.plural} of "
        f"{business.actor.plural} from {city} in {year}?",
        f"DISTINCT {field('item')}",
        ("event", "actor", "item", "city"),
        f"WHERE {field('city')} = {literal(city)} AND {field('year')} = {year}",
        [(name,) for name in names],
        city,
    )


def quantity_in_month(scene: Scene) -> Draft | None:
    """How much of a category in a month of any year?"""
    business, field = scene.business, scene.schema.field
    event = scene.event()
    kind, month = event.item.category, event.month
    events = [e for e in scene.events if e.item.category == kind and e.month == month]
    return scene.draft(
        f"How many {business.quantity} in all have the {business.event.plural} with the "
        f"{business.category} {kind} in month {month} of any year?",
        f"SUM({field('quantity')})",
        ("event", "item", "category"),
        f"WHERE {field('category')} = {literal(kind)} AND {field('month')} = {month}",
        [(sum(e.quantity for e in events),)],
        kind,
    )


def mean_price(scene: Scene) -> Draft | None:
    """What does an item of a category cost on average?"""
    business, field = scene.business, scene.schema.field
    kind = scene.item().category
    cents = [item.cents for item in scene.records.items if item.category == kind]
    mean = rounded(Fraction(sum(cents), 100 * len(cents)))
    if mean is None:
        return None
    return scene.draft(
        f"What is the mean {business.price} of {business.item.plural} with the "
        f"{business.category} {kind}, in euros to two decimals?",
        f"ROUND(AVG({field('price')}), 2)",
        ("item", "category"),
        f"WHERE {field('category')} = {literal(kind)}",
        [(mean,)],
        kind,
    )

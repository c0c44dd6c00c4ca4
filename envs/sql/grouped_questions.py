"""Templates of questions with groups, conditions on groups, and nested queries."""

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

from agentrl_jax.envs.sql.schema import literal
from agentrl_jax.envs.sql.templates import Draft, Scene, euros, rounded


def events_per_category(scene: Scene) -> Draft | None:
    """How many events of a year has each category?"""
    business, field = scene.business, scene.schema.field
    event = scene.event()
    city, year = event.actor.city, event.year
    counts = Counter(
        e.item.category for e in scene.events if e.actor.city == city and e.year == year
    )
    return scene.draft(
        f"For each {business.category} with {business.event.plural} of {business.actor.plural} "
        f"from {city} in {year}: the {business.category} and the number of these "
        f"{business.event.plural}.",
        f"{field('category')}, COUNT(*)",
        ("event", "actor", "item", "city", "category"),
        f"WHERE {field('city')} = {literal(city)} AND {field('year')} = {year} "
        f"GROUP BY {field('category')}",
        list(counts.items()),
        city,
    )


def cost_per_city(scene: Scene) -> Draft | None:
    """What do the people of each city pay for a category?"""
    business, field = scene.business, scene.schema.field
    kind = scene.event().item.category
    totals: dict[str, int] = defaultdict(int)
    for e in scene.events:
        if e.item.category == kind:
            totals[e.actor.city] += e.cents
    return scene.draft(
        f"For each city of {business.actor.plural} with {business.event.plural} of the "
        f"{business.category} {kind}: the city and the total {business.cost} in euros, "
        f"{business.quantity} times {business.price}.",
        f"{field('city')}, SUM({field('cost')})",
        ("event", "actor", "item", "city", "category"),
        f"WHERE {field('category')} = {literal(kind)} GROUP BY {field('city')}",
        [(city, euros(cents)) for city, cents in totals.items()],
        kind,
    )


def busy_actors(scene: Scene) -> Draft | None:
    """Who of a city has more events than so many?"""
    business, field = scene.business, scene.schema.field
    event = scene.event()
    city = event.actor.city
    counts = Counter(e.actor.name for e in scene.events if e.actor.city == city)
    least = counts[event.actor.name]
    return scene.draft(
        f"Which {business.actor.plural} from {city} have at least {least} {business.event.plural}?",
        field("actor"),
        ("event", "actor", "city"),
        f"WHERE {field('city')} = {literal(city)} GROUP BY {field('actor')} "
        f"HAVING COUNT(*) >= {least}",
        [(name,) for name, count in counts.items() if count >= least],
        city,
    )


def first_items(scene: Scene) -> Draft | None:
    """The three items of a category with most events, in order."""
    business, field = scene.business, scene.schema.field
    kind = scene.event().item.category
    counts = Counter(e.item.name for e in scene.events if e.item.category == kind)
    ranks = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    return scene.draft(
        f"The three {business.item.plural} with the {business.category} {kind} that have most "
        f"{business.event.plural}, and how many, most first and equal ones by name.",
        f"{field('item')}, COUNT(*) AS n",
        ("event", "item", "category"),
        f"WHERE {field('category')} = {literal(kind)} GROUP BY {field('item')} "
        f"ORDER BY n DESC, {field('item')} LIMIT 3",
        ranks,
        kind,
        is_ordered=True,
    )


def mean_quantity_per_year(scene: Scene) -> Draft | None:
    """Per year, how large is an event of a category on average?"""
    business, field = scene.business, scene.schema.field
    kind = scene.event().item.category
    values: dict[int, list[int]] = defaultdict(list)
    for e in scene.events:
        if e.item.category == kind:
            values[e.year].append(e.quantity)
    means = [(year, rounded(Fraction(sum(v), len(v)))) for year, v in values.items()]
    if any(mean is None for _, mean in means):
        return None
    return scene.draft(
        f"For each year with {business.event.plural} of the {business.category} {kind}: the year "
        f"and their mean number of {business.quantity}, to two decimals.",
        f"{field('year')}, ROUND(AVG({field('quantity')}), 2)",
        ("event", "item", "category"),
        f"WHERE {field('category')} = {literal(kind)} GROUP BY {field('year')}",
        means,
        kind,
    )


def actors_without_category(scene: Scene) -> Draft | None:
    """Who of a city never had an event with a category?"""
    business, schema, field = scene.business, scene.schema, scene.schema.field
    city, kind = scene.actor().city, scene.event().item.category
    users = {e.actor.id for e in scene.events if e.item.category == kind}
    inner = (
        f"SELECT {field('event_actor')} {schema.source('event', 'item', 'category')} "
        f"WHERE {field('category')} = {literal(kind)}"
    )
    draft = scene.draft(
        f"Which {business.actor.plural} from {city} have no {business.event.singular} with the "
        f"{business.category} {kind}?",
        field("actor"),
        ("actor", "city"),
        f"WHERE {field('city')} = {literal(city)} AND {field('actor_id')} NOT IN ({inner})",
        [(a.name,) for a in scene.records.actors if a.city == city and a.id not in users],
        city,
        kind,
    )
    needed = schema.needed("event", "actor", "item", "city", "category")
    return replace(draft, roles=tuple(needed))


def above_mean_price(scene: Scene) -> Draft | None:
    """Which items of a category cost more than its mean?"""
    business, schema, field = scene.business, scene.schema, scene.schema.field
    kind = scene.item().category
    items = [item for item in scene.records.items if item.category == kind]
    mean = Fraction(sum(item.cents for item in items), len(items))
    condition = f"{field('category')} = {literal(kind)}"
    inner = f"SELECT AVG({field('price')}) {schema.source('item', 'category')} WHERE {condition}"
    return scene.draft(
        f"Which {business.item.plural} with the {business.category} {kind} have a "
        f"{business.price} above the mean {business.price} of that {business.category}?",
        field("item"),
        ("item", "category"),
        f"WHERE {condition} AND {field('price')} > ({inner})",
        [(item.name,) for item in items if item.cents > mean],
        kind,
    )


def dearest_actors(scene: Scene) -> Draft | None:
    """Which people paid most of those of a city?"""
    business, schema, field = scene.business, scene.schema, scene.schema.field
    city = scene.event().actor.city
    totals: dict[str, int] = defaultdict(int)
    for e in scene.events:
        if e.actor.city == city:
            totals[e.actor.name] += e.cents
    grouped = (
        f"WHERE {field('city')} = {literal(city)} GROUP BY {field('actor')} "
        f"HAVING SUM({field('cost')})"
    )
    roles = ("event", "actor", "item", "city")
    inner = (
        f"SELECT MAX(total) FROM (SELECT SUM({field('cost')}) AS total {schema.source(*roles)} "
        f"{grouped.rpartition(' HAVING')[0]})"
    )
    return scene.draft(
        f"Which of the {business.actor.plural} from {city} has the largest total "
        f"{business.cost}, {business.quantity} times {business.price}? If several, name all.",
        field("actor"),
        roles,
        f"{grouped} = ({inner})",
        [(name,) for name, total in totals.items() if total == max(totals.values())],
        city,
    )


def share_of_status(scene: Scene) -> Draft | None:
    """How many per cent of a city's events have a status?"""
    business, schema, field = scene.business, scene.schema, scene.schema.field
    event = scene.event()
    city, status = event.actor.city, event.status
    events = [e for e in scene.events if e.actor.city == city]
    share = rounded(Fraction(100 * sum(e.status == status for e in events), len(events)))
    if share is None:
        return None
    return scene.draft(
        f"How many per cent of the {business.event.plural} of {business.actor.plural} from "
        f"{city} are {status}, to two decimals?",
        f"ROUND(100.0 * SUM({schema.is_status(status)}) / COUNT(*), 2)",
        ("event", "actor", "city", "status"),
        f"WHERE {field('city')} = {literal(city)}",
        [(share,)],
        city,
    )


def more_than_year_before(scene: Scene) -> Draft | None:
    """In which years were there more events of a category than in the year before?"""
    business, schema, field = scene.business, scene.schema, scene.schema.field
    kind = scene.event().item.category
    counts = Counter(e.year for e in scene.events if e.item.category == kind)
    years = (
        f"SELECT {field('year')} AS y, COUNT(*) AS n "
        f"{schema.source('event', 'item', 'category')} "
        f"WHERE {field('category')} = {literal(kind)} GROUP BY y"
    )
    sql = (
        f"WITH years AS ({years}) SELECT new.y FROM years AS new "
        "LEFT JOIN years AS old ON old.y = new.y - 1 WHERE new.n > COALESCE(old.n, 0)"
    )
    return Draft(
        f"In which years were there more {business.event.plural} of the {business.category} "
        f"{kind} than in the year before? The years before the first have none.",
        sql,
        [(year,) for year, count in counts.items() if count > counts[year - 1]],
        (kind,),
        tuple(schema.needed("event", "item", "category")),
    )

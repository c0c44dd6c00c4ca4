"""`Business`: what is common to all databases of one kind, in words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A noun and its plural; tables are named after it or a synonym."""

    singular: str
    plural: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Measure:
    """A size of items, in a large unit of so many small ones."""

    name: str
    large: str
    small: str
    factor: int


@dataclass(frozen=True)
class Business:
    """People and items, and the events that join them.

    Args:
        name: of the kind of business.
        actor, item, event: what the three main tables hold.
        category: of an item; its values are `categories`.
        statuses: that an event may have.
        quantity: what an event counts.
        price: of an item, for one of these.
        cost: quantity times price, as a plural.
        measure: the size of an item.
    """

    name: str
    actor: Noun
    item: Noun
    event: Noun
    category: str
    categories: tuple[str, ...]
    statuses: tuple[str, str, str]
    quantity: str
    price: str
    cost: str
    measure: Measure


_WEIGHT = Measure("weight", "kg", "g", 1000)
_DURATION = Measure("duration", "hours", "minutes", 60)
_DISTANCE = Measure("distance", "km", "m", 1000)
_WIDTH = Measure("width", "m", "cm", 100)


def _noun(singular: str, plural: str, *synonyms: str) -> Noun:
    return Noun(singular, plural, (plural, *synonyms))


BUSINESSES = {
    business.name: business
    for business in (
        Business(
            "library",
            _noun("member", "members", "readers", "patrons"),
            _noun("book", "books", "volumes", "stock"),
            _noun("loan", "loans", "checkouts", "lendings"),
            "genre",
            ("crime", "poetry", "history", "travel", "science"),
            ("returned", "overdue", "lost"),
            "days",
            "daily fee",
            "fees",
            _WEIGHT,
        ),
        Business(
            "shop",
            _noun("customer", "customers", "clients", "buyers"),
            _noun("product", "products", "articles", "goods"),
            _noun("order", "orders", "purchases", "sales"),
            "department",
            ("garden", "kitchen", "sports", "toys", "office"),
            ("shipped", "cancelled", "pending"),
            "pieces",
            "price",
            "values",
            _WEIGHT,
        ),
        Business(
            "clinic",
            _noun("patient", "patients", "persons", "cases"),
            _noun("treatment", "treatments", "therapies", "procedures"),
            _noun("visit", "visits", "appointments", "consultations"),
            "specialty",
            ("dental", "cardiology", "dermatology", "surgery", "pediatrics"),
            ("attended", "missed", "postponed"),
            "units",
            "unit rate",
            "costs",
            _DURATION,
        ),
        Business(
            "school",
            _noun("student", "students", "pupils", "learners"),
            _noun("course", "courses", "modules", "subjects"),
            _noun("enrolment", "enrolments", "course_entries", "signups"),
            "faculty",
            ("music", "languages", "chemistry", "law", "drawing"),
            ("passed", "failed", "withdrawn"),
            "lessons",
            "lesson fee",
            "fees",
            _DURATION,
        ),
        Business(
            "airline",
            _noun("passenger", "passengers", "flyers", "travellers"),
            _noun("flight", "flights", "routes", "connections"),
            _noun("booking", "bookings", "reservations", "tickets"),
            "region",
            ("Nordic", "Alpine", "Atlantic", "Baltic", "Iberian"),
            ("flown", "refunded", "open"),
            "seats",
            "fare",
            "fares",
            _DISTANCE,
        ),
        Business(
            "hotel",
            _noun("guest", "guests", "lodgers", "visitors"),
            _noun("room", "rooms", "suites", "lodgings"),
            _noun("stay", "stays", "bookings", "nights_booked"),
            "comfort class",
            ("basic", "standard", "superior", "luxury", "family"),
            ("completed", "cancelled", "unclaimed"),
            "nights",
            "nightly rate",
            "charges",
            _WIDTH,
        ),
        Business(
            "gym",
            _noun("athlete", "athletes", "trainees", "subscribers"),
            _noun("class", "classes", "trainings", "lessons"),
            _noun("registration", "registrations", "attendances", "checkins"),
            "discipline",
            ("yoga", "boxing", "rowing", "climbing", "dance"),
            ("attended", "skipped", "waitlisted"),
            "places",
            "fee",
            "fees",
            _DURATION,
        ),
        Business(
            "garage",
            _noun("driver", "drivers", "owners", "motorists"),
            _noun("service", "services", "repairs", "operations"),
            _noun("job", "jobs", "workorders", "repair_jobs"),
            "vehicle part",
            ("engine", "brakes", "gearbox", "tyres", "electrics"),
            ("finished", "waiting", "refused"),
            "units",
            "unit rate",
            "costs",
            _DURATION,
        ),
        Business(
            "market",
            _noun("grower", "growers", "farmers", "suppliers"),
            _noun("crop", "crops", "harvest_goods", "produce"),
            _noun("delivery", "deliveries", "consignments", "drops"),
            "crop family",
            ("grain", "fruit", "roots", "herbs", "beans"),
            ("accepted", "rejected", "spoiled"),
            "crates",
            "crate price",
            "values",
            _WEIGHT,
        ),
        Business(
            "restaurant",
            _noun("diner", "diners", "eaters", "regulars"),
            _noun("dish", "dishes", "meals", "menu"),
            _noun("order", "orders", "servings", "tabs"),
            "cuisine",
            ("Thai", "Greek", "Indian", "Mexican", "French"),
            ("served", "cancelled", "complained"),
            "portions",
            "price",
            "values",
            _WEIGHT,
        ),
        Business(
            "cinema",
            _noun("viewer", "viewers", "moviegoers", "audience"),
            _noun("film", "films", "movies", "screenings"),
            _noun("ticket", "tickets", "admissions", "entries"),
            "film genre",
            ("drama", "comedy", "thriller", "western", "animation"),
            ("used", "expired", "refunded"),
            "seats",
            "seat price",
            "prices",
            _DURATION,
        ),
        Business(
            "post",
            _noun("sender", "senders", "shippers", "accounts"),
            _noun("tariff", "tariffs", "parcel_types", "postal_products"),
            _noun("shipment", "shipments", "parcels", "dispatches"),
            "zone",
            ("local", "national", "overseas", "express", "island"),
            ("delivered", "damaged", "returned"),
            "parcels",
            "parcel rate",
            "charges",
            _WEIGHT,
        ),
    )
}

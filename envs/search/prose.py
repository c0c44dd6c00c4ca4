"""The pages of an encyclopedia: facts as prose, in several phrasings."""

import random
import re
from collections.abc import Sequence

from agentrl_jax.envs.page_index import Page
from agentrl_jax.envs.search.facts import World
from agentrl_jax.messages import Message

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
# kind -> the facts' sentences in several phrasings; {t} is the title, the others are facts
SENTENCES = {
    "person": (
        (
            "{t} was born on {day} {born} in {birthplace}.",
            "Born in {birthplace} on {day} {born}, {t} grew up in a family of sailors.",
            "The life of {t} began in {birthplace}, on {day} {born}.",
        ),
        (
            "For many years {t} worked for {employer}.",
            "{employer} employed {t} as a clerk.",
            "{t} earned a living at {employer}.",
        ),
    ),
    "town": (
        (
            "{t} is a town on the {waterway}, settled in {settled}.",
            "The town of {t} lies on the {waterway}; its first houses were built in {settled}.",
            "Settled in {settled}, the town {t} stands on the bank of the {waterway}.",
        ),
        (
            "The mayor of {t} is {mayor}.",
            "{mayor} was elected mayor of {t}.",
            "As mayor, {mayor} leads the council of {t}.",
        ),
    ),
    "book": (
        (
            "{t} is a novel by {author}, published in {published}.",
            "{author} is the author of {t}, which was published in {published}.",
            "Written by {author}, the novel {t} was first printed in {published}.",
        ),
        (
            "The story takes place in {setting}.",
            "Its plot is set in {setting}.",
            "{t} follows a family in {setting}.",
        ),
    ),
    "company": (
        (
            "{t} is a company that {founder} founded in {opened}.",
            "In {opened} the company {t} was founded by {founder}.",
            "{founder} is the founder of {t}, a company opened in {opened}.",
        ),
        (
            "Its seat is in {seat}.",
            "The headquarters of {t} are in {seat}.",
            "{t} has its seat in {seat}.",
        ),
    ),
    "river": (
        (
            "The {t} is {length} km long.",
            "With a length of {length} km, the {t} is known for its floods.",
            "From its source the {t} runs for {length} km.",
        ),
        (
            "It flows into the {mouth}.",
            "The {t} has its mouth at the {mouth}.",
            "Its waters join the {mouth}.",
        ),
    ),
}
_CONFUSED = (
    "It is often confused with {other}.",
    "Readers should not mistake it for {other}.",
    "The name is similar to that of {other}.",
)
FILLERS = (
    "An annual report describes it in detail.",
    "Several local histories mention it with some pride.",
    "Little else has been recorded with certainty.",
    "A small museum keeps letters, maps and photographs about it.",
    "The archive was lost in a fire and only partly restored.",
    "Older sources disagree about the spelling of the name.",
    "A plaque near the market square was unveiled by students.",
    "The entry was revised for the latest edition.",
)


def write_page(world: World, entity: int, fillers: int = 3) -> Page:
    """The page of an entity: its facts, a page with a similar name, and so many sentences without
    facts.
    """
    rng = random.Random(f"{world.seed} {entity}")
    kind, title = world.kinds[entity], world.titles[entity]
    facts = {name: world.titles[p[entity]] for name, p in world.links.items() if entity in p}
    facts |= {name: str(v[entity]) for name, v in world.numbers.items() if entity in v}
    facts |= {"t": title, "day": f"{rng.randint(1, 28)} {rng.choice(_MONTHS)}"}
    sentences = [rng.choice(phrasings).format(**facts) for phrasings in SENTENCES[kind]]
    other = world.titles[world.similar[entity]]
    sentences.append(rng.choice(_CONFUSED).format(other=other))
    sentences += rng.sample(FILLERS, fillers)
    first, *rest = sentences
    rng.shuffle(rest)
    return Page(title, " ".join([first, *rest]))


def write_pages(world: World, fillers: int = 3) -> list[Page]:
    """All pages, in the order of the entities."""
    return [write_page(world, entity, fillers) for entity in range(len(world.titles))]


_SHOWN_PAGE = re.compile(r"Doc \d+ \(Title: (.+?)\) ([^\n<]*)")


def without_fillers(text: str) -> str:
    """A page's sentences that tell facts."""
    confused = tuple(phrasing.partition("{")[0] for phrasing in _CONFUSED)
    sentences = re.findall(r"[^.]+\.", text)
    stripped = (sentence.strip() for sentence in sentences)
    return " ".join(s for s in stripped if s not in FILLERS and not s.startswith(confused))


def summary_of_pages(messages: Sequence[Message]) -> str:
    """A summary of an episode so far: the earlier summary, then the facts of each page shown.

    Args:
        messages: the opening, and maybe a summary, before the turns.
    """
    earlier = [m.text.strip() for m in messages[1:2] if m.role == "user"]
    pages = [page for m in messages if m.role == "tool" for page in _SHOWN_PAGE.findall(m.text)]
    facts = [f"{title}: {without_fillers(text)}" for title, text in pages]
    return "\n".join(dict.fromkeys((*earlier, *facts)))

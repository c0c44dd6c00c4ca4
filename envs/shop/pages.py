"""`Page`: where a customer is in the shop, what can be clicked there, and how it reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentrl_jax.envs.shop.catalogue import Product

BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
DETAILS = ("Description", "Features", "Reviews")


@dataclass(frozen=True)
class Page:
    """The search page (nothing found yet), a page of results, a product's page, or one of its details."""

    found: tuple[int, ...] | None = None  # numbers of products
    number: int = 1  # of the page of results
    product: int | None = None
    chosen: tuple[tuple[str, str], ...] = ()  # option and value
    detail: str = ""


@dataclass(frozen=True)
class Piece:
    """A text of a page."""

    text: str
    button: bool = True
    chosen: bool = False


@dataclass(frozen=True)
class Store:
    """Products, and how many of them are on a page of results."""

    products: Sequence[Product]
    per_page: int
    first_page_only: bool

    def shown(self, page: Page) -> tuple[int, ...]:
        """The products on a page of results."""
        return (page.found or ())[(page.number - 1) * self.per_page : page.number * self.per_page]

    def links(self, page: Page) -> dict[str, Page]:
        """Where each click leads, but for the purchase, in the order of the page."""
        if page.found is None:
            return {}
        links = {BACK: Page()}
        if page.detail:
            return links | {PREVIOUS: replace(page, detail="")}
        if page.product is not None:
            links[PREVIOUS] = replace(page, product=None, chosen=())
            for name, values in self.products[page.product].options.items():
                rest = tuple(pair for pair in page.chosen if pair[0] != name)
                links |= {value: replace(page, chosen=(*rest, (name, value))) for value in values}
            return links | {detail: replace(page, detail=detail) for detail in DETAILS}
        if page.number * self.per_page < len(page.found) and not self.first_page_only:
            links[NEXT] = replace(page, number=page.number + 1)
        if page.number > 1:
            links[PREVIOUS] = replace(page, number=page.number - 1)
        return links | {self.products[number].asin: replace(page, product=number) for number in self.shown(page)}

    def clickable(self, page: Page) -> tuple[str, ...]:
        """All that can be clicked."""
        return (*self.links(page), *((BUY,) if self.sells(page) else ()))

    def sells(self, page: Page) -> bool:
        """The purchase is possible."""
        return page.product is not None and not page.detail

    def lines(self, page: Page) -> list[list[Piece]]:
        """What a page shows below the instruction."""
        if page.found is None:
            return [[Piece("Search")]]
        links, told = self.links(page), lambda text: [Piece(text, button=False)]
        top = [[Piece(name)] for name in (BACK, PREVIOUS) if name in links]
        if page.product is None:
            heads = [[Piece(BACK)], told(f"Page {page.number} (Total results: {len(page.found)})")]
            heads += [[Piece(name)] for name in (NEXT, PREVIOUS) if name in links]
            rows = [self.products[number] for number in self.shown(page)]
            return heads + [line for row in rows for line in ([Piece(row.asin)], told(row.title), told(_price(row)))]
        product = self.products[page.product]
        if page.detail:
            return [*top, *map(told, _detail(product, page.detail))]
        options = [
            [Piece(name, button=False), *(Piece(value, chosen=(name, value) in page.chosen) for value in values)]
            for name, values in product.options.items()
        ]
        heads = [told(product.title), told(f"Price: {_price(product)}"), told("Rating: N.A.")]
        return [*top, *options, *heads, *([Piece(name)] for name in (*DETAILS, BUY))]


def _price(product: Product) -> str:
    return f"${product.price:.2f}"


def _detail(product: Product, detail: str) -> Sequence[str]:
    return {"Description": (product.description,), "Features": product.features}.get(detail, ("There are no reviews yet.",))


def bracketed(lines: Sequence[Sequence[Piece]]) -> str:
    """ArCHer's form, a line for each part: "[Back to Search]", "color [red][[blue]]"; what is chosen has two brackets."""
    marks: Mapping[tuple[bool, bool], str] = {(False, False): "{} ", (True, False): "[{}]", (True, True): "[[{}]]"}
    return "\n".join("".join(marks[piece.button, piece.chosen].format(piece.text) for piece in line).rstrip() for line in lines)


def separated(lines: Sequence[Sequence[Piece]]) -> str:
    """WebShop's text form: all pieces in a row with [SEP] between them."""
    return " [SEP] ".join(piece.text for line in lines for piece in line)

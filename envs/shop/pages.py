"""`Page` and `Storefront`: the pages of the shop, their links and their text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentrl_jax.envs.shop.catalogue import Product

BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
DETAILS = ("Description", "Features", "Reviews")


@dataclass(frozen=True)
class Page:
    """The search page (`results` is None), a result page, a product page or a detail page."""

    results: tuple[int, ...] | None = None  # indices of products
    results_page: int = 1  # of the results, from 1
    product: int | None = None
    chosen_options: tuple[tuple[str, str], ...] = ()  # (option, value)
    detail: str = ""


@dataclass(frozen=True)
class PageElement:
    """A piece of text on a page."""

    text: str
    is_button: bool = True
    is_chosen: bool = False


@dataclass(frozen=True)
class Storefront:
    """The products of a shop and the layout of its result pages."""

    products: Sequence[Product]
    per_page: int
    first_page_only: bool

    def page_products(self, page: Page) -> tuple[int, ...]:
        """Indices of the products on a result page."""
        return (page.results or ())[
            (page.results_page - 1) * self.per_page : page.results_page * self.per_page
        ]

    def links(self, page: Page) -> dict[str, Page]:
        """The page behind every link, in the order of the page; the purchase is no link."""
        if page.results is None:
            return {}
        links = {BACK: Page()}
        if page.detail:
            return links | {PREVIOUS: replace(page, detail="")}
        if page.product is not None:
            links[PREVIOUS] = replace(page, product=None, chosen_options=())
            for name, values in self.products[page.product].options.items():
                other_options = tuple(pair for pair in page.chosen_options if pair[0] != name)
                links |= {
                    value: replace(page, chosen_options=(*other_options, (name, value)))
                    for value in values
                }
            return links | {detail: replace(page, detail=detail) for detail in DETAILS}
        if page.results_page * self.per_page < len(page.results) and not self.first_page_only:
            links[NEXT] = replace(page, results_page=page.results_page + 1)
        if page.results_page > 1:
            links[PREVIOUS] = replace(page, results_page=page.results_page - 1)
        return links | {
            self.products[number].asin: replace(page, product=number)
            for number in self.page_products(page)
        }

    def clickable(self, page: Page) -> tuple[str, ...]:
        """The labels of all links and buttons."""
        return (*self.links(page), *((BUY,) if self.can_buy(page) else ()))

    def can_buy(self, page: Page) -> bool:
        """Whether the page has the button that buys."""
        return page.product is not None and not page.detail

    def lines(self, page: Page) -> list[list[PageElement]]:
        """The elements of a page below the instruction, by lines."""
        if page.results is None:
            return [[PageElement("Search")]]
        links, plain = self.links(page), lambda text: [PageElement(text, is_button=False)]
        top = [[PageElement(name)] for name in (BACK, PREVIOUS) if name in links]
        if page.product is None:
            heads = [
                [PageElement(BACK)],
                plain(f"Page {page.results_page} (Total results: {len(page.results)})"),
            ]
            heads += [[PageElement(name)] for name in (NEXT, PREVIOUS) if name in links]
            rows = [self.products[number] for number in self.page_products(page)]
            return heads + [
                line
                for row in rows
                for line in ([PageElement(row.asin)], plain(row.title), plain(_price_text(row)))
            ]
        product = self.products[page.product]
        if page.detail:
            return [*top, *map(plain, _detail_lines(product, page.detail))]
        options = [
            [
                PageElement(name, is_button=False),
                *(
                    PageElement(value, is_chosen=(name, value) in page.chosen_options)
                    for value in values
                ),
            ]
            for name, values in product.options.items()
        ]
        heads = [
            plain(product.title),
            plain(f"Price: {_price_text(product)}"),
            plain("Rating: N.A."),
        ]
        return [*top, *options, *heads, *([PageElement(name)] for name in (*DETAILS, BUY))]


def _price_text(product: Product) -> str:
    return f"${product.price:.2f}"


def _detail_lines(product: Product, detail: str) -> Sequence[str]:
    return {"Description": (product.description,), "Features": product.features}.get(
        detail, ("There are no reviews yet.",)
    )


def render_bracketed(lines: Sequence[Sequence[PageElement]]) -> str:
    """ArCHer's format, one line per element: "[Back to Search]", "color [red][[blue]]".

    A chosen option has two brackets.
    """
    marks: Mapping[tuple[bool, bool], str] = {
        (False, False): "{} ",
        (True, False): "[{}]",
        (True, True): "[[{}]]",
    }
    return "\n".join(
        "".join(
            marks[piece.is_button, piece.is_chosen].format(piece.text) for piece in line
        ).rstrip()
        for line in lines
    )


def render_separated(lines: Sequence[Sequence[PageElement]]) -> str:
    """WebShop's text format: all elements in one line, separated by [SEP]."""
    return " [SEP] ".join(piece.text for line in lines for piece in line)

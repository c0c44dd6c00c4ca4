"""The mutants of modules, and samples of them that have each module in proportion."""

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from benchmarks.studies.mutation.operators import operators

# Where * and ** are no operators: `def f(x, *, y)` and `{**x}`.
NOT_BINARY = ("parameters", "dictorsetmaker", "atom")


@dataclass(frozen=True)
class Site:
    """A place of a module that an operator can change."""

    module: str  # its file from the root of the repository
    line: int  # from 1
    column: int  # from 0
    operator: str
    occurrence: int  # which place of this operator in the module


@dataclass(frozen=True)
class Mutant:
    """A changed module."""

    site: Site
    before: str  # the line
    after: str  # the line with the change
    source: str  # the whole module with the change


def sites(module: str, source: str) -> list[Site]:
    """All places of a module that the operators can change, outside annotations."""
    annotations = list(_annotation_spans(ast.parse(source)))
    listed = []
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in operators().items():
        occurrence = 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                is_annotation = any(first <= start < end for first, end in annotations)
                is_unpacking = node.parent is not None and node.parent.type in NOT_BINARY
                if not is_annotation and not is_unpacking:
                    listed.append(Site(module, *start, name, occurrence))
                occurrence += 1
    return listed


def make_mutant(site: Site, source: str) -> Mutant:
    """The mutant of a place in a module's source."""
    changed = mutate_code(source, operators()[site.operator], site.occurrence)
    if changed is None or ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)):
        raise ValueError(f"{site} changes nothing")
    line = site.line - 1
    before, after = source.splitlines(), changed.splitlines()
    return Mutant(site, before[line].strip(), after[line].strip(), changed)


def stratified_order(sites_of: Mapping[str, Sequence[Site]], seed: int) -> list[Site]:
    """All places in a random order of which every stretch has each module in proportion: a
    systematic sample.
    """
    placed = []
    for module, module_sites in sites_of.items():
        rng = random.Random(f"{seed} {module}")
        offset = rng.random()
        for i, site in enumerate(rng.sample(module_sites, len(module_sites))):
            placed.append(((i + offset) / len(module_sites), module, site))
    return [site for *_, site in sorted(placed, key=lambda entry: entry[:2])]


def _annotation_spans(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Start and end of each annotation, as (line, column)."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, name, None) for name in ("annotation", "returns")):
            if isinstance(annotation, ast.expr):
                assert annotation.end_lineno is not None and annotation.end_col_offset is not None
                yield (
                    (annotation.lineno, annotation.col_offset),
                    (annotation.end_lineno, annotation.end_col_offset),
                )

"""Tasks that compare groups of rows, by a word or by their dates."""

import itertools
import statistics
from collections import Counter, defaultdict

import numpy as np

from agentrl_jax.envs.code.tables.kinds import NumberColumn
from agentrl_jax.envs.code.tables.scope import (
    CLEAR,
    Scope,
    Task,
    clear_extreme,
    draw_category,
    draw_column,
    groups_code,
    list_code,
)


def most_common(scope: Scope, rng: np.random.Generator) -> Task | None:
    category = draw_category(scope, rng)
    counts = Counter(str(row[category]) for row in scope.rows) if category else {}
    answer = clear_extreme({word: float(n) for word, n in counts.items()}, True)
    if answer is None:
        return None
    return Task(
        f"Which {category} is the most common in {scope.phrase}?",
        f"from collections import Counter\n"
        f"print(Counter(r['{category}'] for r in rows).most_common(1)[0][0])",
        f"SELECT {category} FROM {scope.source()} GROUP BY {category} "
        "ORDER BY COUNT(*) DESC LIMIT 1",
        answer,
        f"I count each {category}.",
    )


def best_group(scope: Scope, rng: np.random.Generator) -> Task | None:
    column, category, is_high = (
        draw_column(scope, rng),
        draw_category(scope, rng),
        rng.random() < 0.5,
    )
    groups = scope.groups(category, column) if category else {}
    answer = clear_extreme({word: statistics.fmean(v) for word, v in groups.items()}, is_high)
    if answer is None:
        return None
    word, name, order = ("highest", "max", "DESC") if is_high else ("lowest", "min", "ASC")
    return Task(
        f"Which {category} has the {word} mean {column.name} in {scope.phrase}?",
        f"{groups_code(category, column)}\nprint({name}(g, key=lambda k: sum(g[k]) / len(g[k])))",
        f"SELECT {category} FROM {scope.source()} GROUP BY {category} "
        f"ORDER BY AVG({column.name}) {order} LIMIT 1",
        answer,
        f"I average {column.name} for each {category}.",
    )


def ranking(scope: Scope, rng: np.random.Generator) -> Task | None:
    """Three words in the order of their totals."""
    column, category = draw_column(scope, rng), draw_category(scope, rng)
    totals = {w: sum(v) for w, v in scope.groups(category, column).items()} if category else {}
    ranked = sorted(totals, key=lambda word: -totals[word])
    first = [totals[word] for word in ranked[:4]]
    if len(ranked) < 3 or any(a - b <= CLEAR * a for a, b in itertools.pairwise(first)):
        return None
    groups = f"SELECT {category} FROM {scope.source()} GROUP BY {category} "
    return Task(
        f"Which three values of {category} have the highest total {column.name} in "
        f"{scope.phrase}? List them from the highest on.",
        f"{groups_code(category, column)}\n"
        f"print(', '.join(sorted(g, key=lambda k: -sum(g[k]))[:3]))",
        f"SELECT GROUP_CONCAT({category}, ', ') FROM "
        f"({groups}ORDER BY SUM({column.name}) DESC LIMIT 3)",
        tuple(ranked[:3]),
        f"I add up {column.name} for each {category} and sort.",
    )


def difference(scope: Scope, rng: np.random.Generator) -> Task | None:
    """Of the means of two words."""
    pair = _two_groups(scope, rng)
    if pair is None:
        return None
    column, category, (first, second), (a, b) = pair
    averages = [
        f"(SELECT AVG({column.name}) FROM {scope.source(f'{category} = {word!r}')})"
        for word in (first, second)
    ]
    return Task(
        f"By how much is the mean {column.name} of {scope.phrase} higher for {category} {first} "
        f"than for {second}?",
        f"{groups_code(category, column)}\na, b = g['{first}'], g['{second}']\n"
        "print(sum(a) / len(a) - sum(b) / len(b))",
        f"SELECT {averages[0]} - {averages[1]}",
        a - b,
        f"I average {column.name} for {first} and for {second}.",
    )


def claim(scope: Scope, rng: np.random.Generator) -> Task | None:
    """Whether one word's mean is above another's."""
    pair = _two_groups(scope, rng)
    if pair is None:
        return None
    column, category, (first, second), (a, b) = pair
    if rng.random() < 0.5:
        first, second, a, b = second, first, b, a
    averages = [
        f"(SELECT AVG({column.name}) FROM {scope.source(f'{category} = {word!r}')})"
        for word in (first, second)
    ]
    return Task(
        f"Is it true that the mean {column.name} of {scope.phrase} is higher for {category} "
        f"{first} than for {second}? Answer yes or no.",
        f"{groups_code(category, column)}\na, b = g['{first}'], g['{second}']\n"
        "print('yes' if sum(a) / len(a) > sum(b) / len(b) else 'no')",
        f"SELECT IIF({averages[0]} > {averages[1]}, 'yes', 'no')",
        "yes" if a > b else "no",
        f"I compare {first} and {second}.",
    )


def _two_groups(
    scope: Scope, rng: np.random.Generator
) -> tuple[NumberColumn, str, tuple[str, str], tuple[float, float]] | None:
    """A column and two words of another whose means differ clearly, the higher first."""
    column, category = draw_column(scope, rng), draw_category(scope, rng)
    if not category:
        return None
    means = {w: statistics.fmean(v) for w, v in scope.groups(category, column).items()}
    words = sorted(means)
    if len(words) < 2:
        return None
    first, second = (words[int(i)] for i in rng.permutation(len(words))[:2])
    if means[first] < means[second]:
        first, second = second, first
    if means[first] - means[second] <= CLEAR * means[first]:
        return None
    return column, category, (first, second), (means[first], means[second])


def month(scope: Scope, rng: np.random.Generator) -> Task | None:
    """The month with the highest total."""
    column = draw_column(scope, rng)
    totals: dict[str, float] = defaultdict(float)
    for row in scope.rows:
        if (value := row[column.name]) is not None:
            totals[str(row["date"])[:7]] += float(value)
    if (answer := clear_extreme(totals, True)) is None:
        return None
    cell = f"r['{column.name}']"
    return Task(
        f"In which month, as YYYY-MM, is the total {column.name} of {scope.phrase} the highest?",
        f"m = {{}}\nfor r in rows:\n    k = r['date'][:7]\n"
        f"    m[k] = m.get(k, 0) + float({cell} or 0)\nprint(max(m, key=m.get))",
        f"SELECT SUBSTR(date, 1, 7) FROM {scope.source()} GROUP BY 1 "
        f"ORDER BY SUM({column.name}) DESC LIMIT 1",
        answer,
        f"I add up {column.name} by month.",
    )


def half_years(scope: Scope, rng: np.random.Generator) -> Task | None:
    """The change of a mean from the first to the second half of the year."""
    column = draw_column(scope, rng)
    halves: tuple[list[float], list[float]] = ([], [])
    for row in scope.rows:
        if (value := row[column.name]) is not None:
            halves[str(row["date"])[5:7] > "06"].append(float(value))
    if not all(halves):
        return None
    early, late = map(statistics.fmean, halves)
    if abs(late - early) <= CLEAR * early:
        return None
    parts = "\n".join(
        list_code(column, name, f"[r for r in rows if r['date'][5:7] {sign} '06']")
        for name, sign in (("a", "<="), ("b", ">"))
    )
    conditions = "SUBSTR(date, 6, 2) <= '06'", "SUBSTR(date, 6, 2) > '06'"
    before, after = (
        f"(SELECT AVG({column.name}) FROM {scope.source(condition)})" for condition in conditions
    )
    return Task(
        f"By how many percent is the mean {column.name} of {scope.phrase} higher from July on than "
        "before? A decrease is negative.",
        f"{parts}\na, b = sum(a) / len(a), sum(b) / len(b)\nprint(100 * (b - a) / a)",
        f"SELECT 100.0 * ({after} - {before}) / {before}",
        100.0 * (late - early) / early,
        "I average both halves of the year.",
    )

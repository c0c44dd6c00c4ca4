"""Tasks on one or two columns: numbers of rows, sums, means, spreads, shares and correlations."""

import statistics

import numpy as np

from agentrl_jax.envs.code.tables.kinds import pick
from agentrl_jax.envs.code.tables.scope import (
    Scope,
    Task,
    draw_category,
    draw_column,
    list_code,
)


def count(scope: Scope, rng: np.random.Generator) -> Task | None:
    answer = float(len(scope.rows))
    sql = f"SELECT COUNT(*) FROM {scope.source()}"
    return Task(f"How many are {scope.phrase}?", "print(len(rows))", sql, answer, "I count.")


def total(scope: Scope, rng: np.random.Generator) -> Task | None:
    column = draw_column(scope, rng)
    return Task(
        f"What is the total {column.name} of {scope.phrase}, in {column.unit}?",
        f"{list_code(column)}\nprint(sum(v))",
        f"SELECT SUM({column.name}) FROM {scope.source()}",
        sum(scope.values(column)),
        f"I add up {column.name}.",
    )


def mean(scope: Scope, rng: np.random.Generator) -> Task | None:
    column = draw_column(scope, rng)
    if not (values := scope.values(column)):
        return None
    return Task(
        f"What is the mean {column.name} of {scope.phrase}, in {column.unit}?",
        f"{list_code(column)}\nprint(sum(v) / len(v))",
        f"SELECT AVG({column.name}) FROM {scope.source()}",
        sum(values) / len(values),
        f"I average {column.name}.",
    )


def extreme(scope: Scope, rng: np.random.Generator) -> Task | None:
    column, is_high = draw_column(scope, rng), rng.random() < 0.5
    if not (values := scope.values(column)):
        return None
    word, name = ("highest", "max") if is_high else ("lowest", "min")
    return Task(
        f"What is the {word} {column.name} of {scope.phrase}, in {column.unit}?",
        f"{list_code(column)}\nprint({name}(v))",
        f"SELECT {name.upper()}({column.name}) FROM {scope.source()}",
        max(values) if is_high else min(values),
        f"I take the {word} {column.name}.",
    )


def spread(scope: Scope, rng: np.random.Generator) -> Task | None:
    """The difference of the highest and the lowest."""
    column = draw_column(scope, rng)
    values = scope.values(column)
    if not values or max(values) == min(values):
        return None
    return Task(
        f"How far apart are the highest and the lowest {column.name} of {scope.phrase}?",
        f"{list_code(column)}\nprint(max(v) - min(v))",
        f"SELECT MAX({column.name}) - MIN({column.name}) FROM {scope.source()}",
        max(values) - min(values),
        f"I subtract the lowest {column.name} from the highest.",
    )


def median(scope: Scope, rng: np.random.Generator) -> Task | None:
    column = draw_column(scope, rng)
    if not (values := scope.values(column)):
        return None
    return Task(
        f"What is the median {column.name} of {scope.phrase}, in {column.unit}?",
        f"import statistics\n{list_code(column)}\nprint(statistics.median(v))",
        "",
        float(np.median(values)),
        f"I need the median of {column.name}.",
    )


def deviation(scope: Scope, rng: np.random.Generator) -> Task | None:
    column = draw_column(scope, rng)
    values = scope.values(column)
    if len(values) < 3 or len(set(values)) < 2:
        return None
    return Task(
        f"What is the sample standard deviation of {column.name} in {scope.phrase}?",
        f"import statistics\n{list_code(column)}\nprint(statistics.stdev(v))",
        "",
        float(np.std(values, ddof=1)),
        f"I need the deviation of {column.name}.",
    )


def share(scope: Scope, rng: np.random.Generator) -> Task | None:
    if not (category := draw_category(scope, rng)):
        return None
    words = sorted({str(row[category]) for row in scope.rows})
    word = words[pick(rng, words)]
    part = sum(row[category] == word for row in scope.rows)
    return Task(
        f"What percentage of {scope.phrase} has {category} {word}?",
        f"n = sum(r['{category}'] == '{word}' for r in rows)\nprint(100 * n / len(rows))",
        f"SELECT 100.0 * SUM({category} = '{word}') / COUNT(*) FROM {scope.source()}",
        100.0 * part / len(scope.rows),
        f"I count {word} and divide.",
    )


def distinct(scope: Scope, rng: np.random.Generator) -> Task | None:
    if not (category := draw_category(scope, rng)):
        return None
    return Task(
        f"How many different values of {category} have {scope.phrase}?",
        f"print(len({{r['{category}'] for r in rows}}))",
        f"SELECT COUNT(DISTINCT {category}) FROM {scope.source()}",
        float(len({row[category] for row in scope.rows})),
        f"I count the values of {category}.",
    )


def correlation(scope: Scope, rng: np.random.Generator) -> Task | None:
    numbers = scope.table.numbers
    first, second = (numbers[int(i)] for i in rng.permutation(len(numbers))[:2])
    pairs = [
        (float(x), float(y))
        for row in scope.rows
        if (x := row[first.name]) is not None and (y := row[second.name]) is not None
    ]
    if len(pairs) < 4 or min(len({p[0] for p in pairs}), len({p[1] for p in pairs})) < 2:
        return None
    answer = float(np.corrcoef(np.array(pairs).T)[0, 1])
    if abs(answer) < 0.05:
        return None
    cells = f"r['{first.name}']", f"r['{second.name}']"
    return Task(
        f"What is Pearson's correlation of {first.name} and {second.name} in {scope.phrase}?",
        "import statistics\n"
        f"p = [(float({cells[0]}), float({cells[1]})) for r in rows if {cells[0]} and {cells[1]}]\n"
        "print(statistics.correlation(*zip(*p)))",
        "",
        answer,
        f"I pair {first.name} and {second.name}.",
    )


def outliers(scope: Scope, rng: np.random.Generator) -> Task | None:
    column = draw_column(scope, rng)
    values = scope.values(column)
    if len(values) < 3 or len(set(values)) < 2:
        return None
    bound = statistics.fmean(values) + 1.5 * statistics.stdev(values)
    number = sum(value > bound for value in values)
    if number == 0 or any(abs(value - bound) < 1e-6 * bound for value in values):
        return None
    return Task(
        f"How many of {scope.phrase} have a {column.name} of more than 1.5 sample standard "
        "deviations above the mean?",
        f"import statistics\n{list_code(column)}\n"
        "b = statistics.mean(v) + 1.5 * statistics.stdev(v)\nprint(sum(x > b for x in v))",
        "",
        float(number),
        f"I need mean and deviation of {column.name}.",
    )

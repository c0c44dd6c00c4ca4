"""The generated exercises: the answers are right by an independent computation."""

import itertools
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from agentrl_jax.corpus.arithmetic import arithmetic
from agentrl_jax.corpus.domains import DOMAINS
from agentrl_jax.corpus.exercise import Exercise
from agentrl_jax.corpus.lists import lists
from agentrl_jax.corpus.python_programs import python_programs, run_program
from agentrl_jax.corpus.questions import questions
from agentrl_jax.corpus.sql import sql
from agentrl_jax.corpus.tool_calls import tool_calls
from agentrl_jax.documents import ChatDocument, document_text
from agentrl_jax.messages import Message
from agentrl_jax.tools.json_schema import violation

COUNT = 150  # exercises of a domain


def exercises(domain, count: int = COUNT, seed: int = 0) -> list[Exercise]:
    rng = np.random.default_rng(seed)
    return [domain(rng) for _ in range(count)]


@pytest.mark.parametrize("name", DOMAINS)
def test_an_exercise_is_well_formed_and_depends_on_the_seed_alone(name: str):
    domain = DOMAINS[name].domain
    first, again = exercises(domain, 20, seed=1), exercises(domain, 20, seed=1)
    assert first == again and exercises(domain, 20, seed=2) != first
    for exercise in first:
        *prompts, last = exercise.prompts
        assert last == exercise.prompt and exercise.answer.role == "assistant"
        assert document_text(exercise.document).startswith(document_text(exercise.prompt))
        if isinstance(exercise.prompt, ChatDocument):
            roles = [message.role for message in exercise.prompt.messages]
            assert roles[0] == "user" and len(prompts) == roles.count("assistant")
            assert all(x != y for x, y in itertools.pairwise(roles) if x == "assistant")


def test_the_shares_of_the_domains_are_a_whole():
    assert sum(share.percent for share in DOMAINS.values()) == 100


def test_every_line_of_an_arithmetic_trace_is_an_equation_that_holds():
    for exercise in exercises(arithmetic):
        question = str(exercise.prompt).removesuffix(" = ?\n")
        *steps, result = exercise.answer.text.split("\n")
        assert result == f"= {eval(question)}"
        for step in steps:
            left, right = step.split(" = ")
            assert eval(left) == int(right), exercise


def test_the_digits_of_a_sum_and_a_product_are_the_last_digits_of_its_steps():
    for exercise in exercises(arithmetic):
        question, lines = str(exercise.prompt), exercise.answer.text.split("\n")
        if (question.count("+") == 1 and len(lines) > 2) or "*" in question:
            *lower, top = [step.split(" = ")[1] for step in lines[:-1]]
            digits = top + "".join(number[-1] for number in reversed(lower))
            assert int(digits) == int(lines[-1].removeprefix("= "))


def known_facts(passage: str) -> Mapping[str, Mapping[str, str]]:
    """relation -> name -> value"""
    patterns = {
        "city": r"(\w+) lives in (\w+)\.",
        "job": r"(\w+) is a (\w+)\.",
        "thing": r"(\w+) owns a (\w+ \w+)\.",
        "pet": r"(\w+) has a pet (\w+)\.",
    }
    return {name: dict(re.findall(pattern, passage)) for name, pattern in patterns.items()}


def answer_question(question: str, facts: Mapping[str, Mapping[str, str]]) -> str:
    """The answer by a search through all facts."""
    city, job, thing, pet = (facts[name] for name in ("city", "job", "thing", "pet"))
    rules = {
        r"Where does (\w+) live\?": lambda x: city[x],
        r"What is the job of (\w+)\?": lambda x: job[x],
        r"What color is the \w+ of (\w+)\?": lambda x: thing[x].split()[0],
        r"What does (\w+) own\?": lambda x: f"a {thing[x]}",
        r"Which pet does (\w+) have\?": lambda x: f"a {pet[x]}",
        r"Who owns the (\w+ \w+)\?": lambda x: by_value(thing)[x],
        r"Who has a pet (\w+)\?": lambda x: by_value(pet)[x],
        r"Where does the owner of the (\w+) live\?": lambda x: city[owner(x)],
        r"What is the job of the owner of the (\w+)\?": lambda x: job[owner(x)],
        r"Does (\w+) live in (\w+)\?": lambda x, y: yes(city[x] == y),
        r"Is (\w+) a (\w+)\?": lambda x, y: yes(job[x] == y),
        r"Does (\w+) have a pet (\w+)\?": lambda x, y: yes(pet[x] == y),
        r"How many people live in (\w+)\?": lambda x: str([*city.values()].count(x)),
    }

    def by_value(relation: Mapping[str, str]) -> dict[str, str]:
        return {value: name for name, value in relation.items()}

    def owner(x: str) -> str:
        kinds = {name: value.split()[1] for name, value in thing.items()}
        return (by_value(kinds) | by_value(pet))[x]

    def yes(is_so: bool) -> str:
        return "Yes" if is_so else "No"

    (answer,) = [
        rule(*match.groups())
        for pattern, rule in rules.items()
        if (match := re.fullmatch(pattern, question))
    ]
    return answer


def test_the_answer_to_a_question_follows_from_the_facts():
    kinds = set()
    for exercise in exercises(questions, 2 * COUNT):
        prompt = exercise.prompt
        is_chat = isinstance(prompt, ChatDocument)
        text = prompt.messages[0].text if isinstance(prompt, ChatDocument) else prompt
        passage, question = text.removesuffix("\nA:").split("\n")
        right = answer_question(question.removeprefix("Q: "), known_facts(passage))
        assert exercise.answer.text.strip() == right
        kinds.add((is_chat, question.removeprefix("Q: ").split()[0]))
    assert len(kinds) == 14  # Where, What, Which, Who, Does, Is, How; as text and as a chat


def test_programs_print_what_python_prints():
    samples = exercises(python_programs)
    programs = [str(x.prompt).removeprefix("Program:\n").removesuffix("Output:\n") for x in samples]
    code = (
        "import contextlib, io, json, sys\n"
        "def run(program):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out: exec(program, {})\n"
        "    return out.getvalue()\n"
        "print(json.dumps(list(map(run, json.load(sys.stdin)))))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [f"{exercise.answer.text}\n" for exercise in samples]


def test_a_program_has_no_files_and_no_imports():
    for program in ("open('x')", "import os", "__import__('os')", "eval('1')"):
        with pytest.raises((NameError, ImportError)):
            run_program(program)


def test_queries_return_what_a_database_returns():
    for exercise in exercises(sql):
        head, *rows, query, _ = str(exercise.prompt).split("\n")
        table = head.removeprefix("Table ").removesuffix(":")
        values = [row.split("|") for row in rows]
        database = sqlite3.connect(":memory:")
        database.execute(f"CREATE TABLE {table} ({', '.join(values[0])} INTEGER)")
        marks = ", ".join("?" * len(values[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", values[1:])
        result = database.execute(query.removeprefix("SQL: ")).fetchall()
        database.close()
        lines = ["|".join(map(str, row)) for row in result]
        assert exercise.answer.text == ("\n".join(lines) or "none")


def arguments_of(message: Message) -> dict:
    return json.loads(message.tool_calls[0].arguments)


def test_calls_fit_their_schemas_and_calculations_are_right():
    functions = {
        "add": lambda a, b: a + b,
        "multiply": lambda a, b: a * b,
        "maximum": lambda numbers: max(numbers),
    }
    kinds = set()
    for exercise in exercises(tool_calls):
        assert isinstance(exercise.prompt, ChatDocument) and exercise.prompt.tools
        schemas = {tool["function"]["name"]: tool["function"] for tool in exercise.prompt.tools}
        messages = (*exercise.prompt.messages, exercise.answer)
        for message, result in zip(messages, (*messages[1:], None)):
            for call in message.tool_calls:
                kinds.add(call.name)
                schema = schemas[call.name]["parameters"]
                assert violation(arguments_of(message), schema, "the call") is None
                if call.name in functions and result:
                    assert result.text == str(functions[call.name](**arguments_of(message)))
                    assert result.tool_call_id == call.id
        if exercise.prompt.messages[-1].role == "tool" and not exercise.answer.tool_calls:
            assert exercise.prompt.messages[-1].text in exercise.answer.text
    assert kinds == {"get_stock", "get_age", "get_weather", "add", "multiply", "maximum"}


def rearranged(task: str, items: list[str]) -> list[str]:
    """What the task asks for."""
    if task.startswith("After "):
        return [items[items.index(task.removeprefix("After ")) + 1]]
    numbers = all(item.isdecimal() for item in items)
    ordered = [str(x) for x in sorted(map(int, items))] if numbers else sorted(items)
    return {
        "Repeat": items,
        "Reverse": items[::-1],
        "Sort": ordered,
        "Last": items[-1:],
    }[task]


def test_lists_are_rearranged_as_asked():
    tasks = set()
    for exercise in exercises(lists):
        task, items = str(exercise.prompt).removesuffix("\n").split(": ")
        assert len(set(items.split())) == len(items.split())
        assert exercise.answer.text.split() == rearranged(task, items.split())
        tasks.add(task.split()[0])
    assert tasks == {"Repeat", "Reverse", "Sort", "Last", "After"}

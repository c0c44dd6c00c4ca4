"""Conversations with tools: what to look up and to calculate, calls, results, answers."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.corpus.exercise import Exercise
from agentrl_jax.corpus.words import CITIES, FOODS, PEOPLE, choice, integer, sample
from agentrl_jax.documents import ChatDocument
from agentrl_jax.messages import Message, ToolCall, assistant, tool_result, user
from agentrl_jax.tools import Tool, tool

WEATHERS = ("sunny", "rainy", "cloudy", "windy", "foggy", "snowy")


@dataclass(frozen=True)
class World:
    """What the tools know."""

    stock: Mapping[str, int]
    ages: Mapping[str, int]
    weather: Mapping[str, str]

    def get_stock(self, product: str) -> int:
        """Tell how many pieces of a product are in stock.

        Args:
            product: its name
        """
        return self.stock[product]

    def get_age(self, person: str) -> int:
        """Tell the age of a person.

        Args:
            person: the name
        """
        return self.ages[person]

    def get_weather(self, city: str) -> str:
        """Tell the weather in a city.

        Args:
            city: its name
        """
        return self.weather[city]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: a number
        b: another
    """
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: a number
        b: another
    """
    return a * b


def maximum(numbers: list[int]) -> int:
    """Find the largest of some numbers.

    Args:
        numbers: at least one
    """
    return max(numbers)


@dataclass
class Conversation:
    """A conversation as it goes on; calls are answered by the tools."""

    tools: Mapping[str, Tool]
    messages: list[Message] = field(default_factory=list)

    def call(self, name: str, **arguments: object) -> str:
        """The assistant calls a tool; returns the result."""
        call = ToolCall(f"call_{len(self.messages)}", name, json.dumps(arguments))
        result = self.tools[name].run(call).text
        self.messages += [Message("assistant", "", (call,)), tool_result(call, result)]
        return result

    def exercises(self) -> Iterator[Exercise]:
        """One for each message of the assistant."""
        tools = tuple(t.schema for t in self.tools.values())
        for i, message in enumerate(self.messages):
            if message.role == "assistant":
                yield Exercise(ChatDocument(tuple(self.messages[:i]), tools), message)


# What the user asks and how it is answered, in a conversation with the tools that are named.
Task = Callable[[np.random.Generator, World, Conversation], None]


def tool_calls(rng: np.random.Generator) -> Exercise:
    """A call or the answer, in a conversation with one or two tools; half are answers."""
    world = _sample_world(rng)
    names, task = choice(rng, TASKS)
    conversation = Conversation(_sample_tools(rng, world, names))
    task(rng, world, conversation)
    *earlier, last = conversation.exercises()
    return last if not earlier or rng.random() < 0.5 else choice(rng, earlier)


def _sample_world(rng: np.random.Generator) -> World:
    return World(
        stock={food: integer(rng, 1, 60) for food in FOODS},
        ages={person: integer(rng, 5, 90) for person in PEOPLE},
        weather={city: choice(rng, WEATHERS) for city in CITIES},
    )


def _sample_tools(
    rng: np.random.Generator, world: World, names: Sequence[str]
) -> Mapping[str, Tool]:
    """The named tools, where it is one up to one other, in a random order."""
    functions = (world.get_stock, world.get_age, world.get_weather, add, multiply, maximum)
    known = {f.__name__: tool(f) for f in functions}
    count = integer(rng, 0, 1) if len(names) == 1 else 0
    others = sample(rng, [name for name in known if name not in names], count)
    tools = [*names, *others]
    return {name: known[name] for name in sample(rng, tools, len(tools))}


def _look_up(rng: np.random.Generator, world: World, talk: Conversation) -> None:
    """One call of the only tool that is named."""
    name, (argument, topics, ask, say) = choice(rng, tuple(LOOK_UPS.items()))
    if name not in talk.tools:
        name = next(name for name in talk.tools if name in LOOK_UPS)
        argument, topics, ask, say = LOOK_UPS[name]
    topic = choice(rng, topics)
    talk.messages.append(user(ask.format(topic)))
    result = talk.call(name, **{argument: topic})
    talk.messages.append(assistant(say.format(topic, result)))


# tool -> its argument, what is asked about, the question and the answer
LOOK_UPS: Mapping[str, tuple[str, Sequence[str], str, str]] = {
    "get_stock": ("product", FOODS, "How many {} are in stock?", "There are {1} {0}."),
    "get_age": ("person", PEOPLE, "How old is {}?", "{} is {} years old."),
    "get_weather": ("city", CITIES, "What is the weather in {}?", "It is {1} in {0}."),
}


def _calculate(rng: np.random.Generator, world: World, talk: Conversation) -> None:
    a, b = integer(rng, 1, 99), integer(rng, 1, 99)
    name = "add" if "add" in talk.tools else "multiply"
    talk.messages.append(user(f"What is {a} {'plus' if name == 'add' else 'times'} {b}?"))
    talk.messages.append(assistant(f"It is {talk.call(name, a=a, b=b)}."))


def _stock_of_two(rng: np.random.Generator, world: World, talk: Conversation) -> None:
    first, second = sample(rng, FOODS, 2)
    talk.messages.append(user(f"How many {first} and {second} are in stock together?"))
    counts = [int(talk.call("get_stock", product=food)) for food in (first, second)]
    total = talk.call("add", a=counts[0], b=counts[1])
    talk.messages.append(assistant(f"There are {total} {first} and {second}."))


def _cost(rng: np.random.Generator, world: World, talk: Conversation) -> None:
    food, price = choice(rng, FOODS), integer(rng, 2, 9)
    talk.messages.append(user(f"Each of the {food} in stock costs {price}. What do all cost?"))
    total = talk.call("multiply", a=int(talk.call("get_stock", product=food)), b=price)
    talk.messages.append(assistant(f"All {food} cost {total}."))


def _oldest(rng: np.random.Generator, world: World, talk: Conversation) -> None:
    people = sample(rng, PEOPLE, integer(rng, 2, 3))
    talk.messages.append(user(f"What is the age of the oldest of {', '.join(people)}?"))
    ages = [int(talk.call("get_age", person=person)) for person in people]
    talk.messages.append(assistant(f"It is {talk.call('maximum', numbers=ages)}."))


def _no_tool(rng: np.random.Generator, world: World, talk: Conversation) -> None:
    """The tools do not help, so none is called."""
    question, answer = choice(
        rng,
        (
            ("Hello!", "Hello! How can I help you?"),
            ("Thank you.", "You are welcome."),
            (f"My name is {choice(rng, PEOPLE)}.", "Nice to meet you."),
            (f"Please write the word {(word := choice(rng, FOODS))}.", word),
        ),
    )
    talk.messages += [user(question), assistant(answer)]


# the tools that a task needs, and the task
TASKS: Sequence[tuple[Sequence[str], Task]] = (
    (("get_stock",), _look_up),
    (("get_age",), _look_up),
    (("get_weather",), _look_up),
    (("add",), _calculate),
    (("multiply",), _calculate),
    (("get_stock", "add"), _stock_of_two),
    (("get_stock", "multiply"), _cost),
    (("get_age", "maximum"), _oldest),
    (("get_weather",), _no_tool),
)

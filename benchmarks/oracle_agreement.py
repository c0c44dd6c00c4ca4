"""Agreement of the oracles' twins: python benchmarks/oracle_agreement.py [--out=runs/oracles] [--url=http://... --model=NAME]

Both twins of each dialogue task are asked the same: of Twenty Questions a thing and a question of the table, of Guess My City a city and
a topic's question, of Car Dealer what the buyer decides after a talk. Without --url a small decoder is first trained on the scripted
twins' answers to some of these and saved as a Hugging Face folder, which is then served as `agentrl-serve` serves it; "seen" questions
are of those, "held out" ones are not. Prints a JSON line for each and keeps it: what is there is not done again.
"""

import argparse
import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

import agentrl_jax.envs  # noqa: F401  registers the worlds
from agentrl_jax import models
from agentrl_jax.algorithms.supervised import SupervisedConfig
from agentrl_jax.context import FullHistory
from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl.car_dealer.brief import Brief
from agentrl_jax.envs.lmrl.car_dealer.buyer import AskedBuyer, Buyer, ScriptedBuyer
from agentrl_jax.envs.lmrl.car_dealer.decision import cut
from agentrl_jax.envs.lmrl.guess_city import asked as asked_city
from agentrl_jax.envs.lmrl.guess_city import scripted as scripted_city
from agentrl_jax.envs.lmrl.guess_city.table import cities
from agentrl_jax.envs.lmrl.oracles import Ask, Endpoint, Oracle, agreement
from agentrl_jax.envs.lmrl.twenty_questions import asked as asked_thing
from agentrl_jax.envs.lmrl.twenty_questions import scripted as scripted_thing
from agentrl_jax.envs.lmrl.twenty_questions.table import attributes, things
from agentrl_jax.episodes import scripted_calls
from agentrl_jax.launch.serving import key_of, of_folder, serving
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import train_bpe
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.rendering import ChatRenderer
from agentrl_jax.runtime import Runtime
from agentrl_jax.sharding import MeshConfig, make_mesh
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Group, Sampling, Trajectory, Turn
from agentrl_jax.workers import InProcess

Question = tuple[str, str]  # what is hidden, what is asked
LONGEST = 256  # tokens of a prompt and its answer
TEXTS = 5  # of a talk, at most: longer ones would not fit
HELD_OUT = 0.1
KEY = "ORACLE_AGREEMENT_KEY"


@dataclass(frozen=True)
class Deciding:
    """A buyer as an oracle: of one of some talks, what the buyer decides."""

    buyer: Buyer
    talks: Sequence[tuple[Brief, tuple[str, ...]]]

    def answer(self, hidden: str, question: str) -> str:
        decision = cut(self.buyer.reply(*self.talks[int(hidden)]))[1]
        return "goes on" if decision is None else "accepts" if decision.accepted else "rejects"


@dataclass(frozen=True)
class Twins:
    """Both oracles of a task, and all that they can be asked; `said` is what the scripted one says in full."""

    questions: Sequence[Question]
    scripted: Oracle
    asked: Callable[[Ask], Oracle]
    said: Callable[[Question], str]


def talks(count: int, seed: int = 0) -> list[tuple[Brief, tuple[str, ...]]]:
    """Talks up to a seller's text that the buyer has yet to answer, as the mixture player has them with the scripted buyer."""
    env, found, rng = make("agentrl/CarDealer-v0"), [], np.random.default_rng(seed)
    while len(found) < count:
        env.reset(seed=int(rng.integers(2**31)))
        over = False
        while not over:
            text = env.players["mixture"](env, rng)
            if len(env.talk) < TEXTS:  # pyright: ignore
                found.append((env.brief, (*env.talk, " ".join(text.split()))))  # pyright: ignore
            over = any(env.step(text)[2:4])
    return found[:count]


def tasks(count: int = 4000) -> dict[str, Twins]:
    """The three tasks; `count` talks."""
    of_things = [(thing.word, attribute.question) for thing in things() for attribute in attributes()]
    of_cities = [(city.word, question) for city in cities() for question in scripted_city.QUESTIONS]
    thing, city, cars = scripted_thing.ScriptedOracle(), scripted_city.ScriptedOracle(), talks(count)
    return {
        "TwentyQuestions": Twins(of_things, thing, lambda ask: asked_thing.asked(ask, "archer"), lambda q: thing.answer(*q)),
        "GuessCity": Twins(of_cities, city, asked_city.asked, lambda q: city.answer(*q)),
        "CarDealer": Twins(
            [(str(i), "") for i in range(len(cars))], Deciding(ScriptedBuyer(), cars), lambda ask: Deciding(AskedBuyer(ask), cars),
            lambda q: ScriptedBuyer().reply(*cars[int(q[0])]),
        ),
    }  # fmt: skip


def parted(twins: Twins, seed: int = 1) -> dict[str, list[Question]]:
    """Questions in a random order: those that a model is trained on, and those that are held out."""
    order = [twins.questions[i] for i in np.random.default_rng(seed).permutation(len(twins.questions))]
    held_out = round(HELD_OUT * len(order))
    return {"seen": order[held_out:], "held out": order[:held_out]}


def prompted(twins: Twins, question: Question) -> str:
    """What the language model is asked."""
    heard: list[str] = []
    twins.asked(lambda prompt: heard.append(prompt) or "").answer(*question)
    return heard[0]


def train(folder: Path, steps: int, batch: int, most: int) -> None:
    """A decoder of half a million weights, taught the scripted twins' answers to at most `most` seen questions of each task."""
    pairs = [(prompted(t, q), t.said(q)) for t in tasks().values() for q in parted(t)["seen"][:most]]
    tokenizer = train_bpe((text for pair in pairs for text in pair), 1024, chat=True)
    policy = DecoderConfig(layers=2, width=128, hidden=256, heads=4, kv_heads=4, head_size=32).build(len(tokenizer))
    agent = Agent("oracle", ChatRenderer(tokenizer), FullHistory(), Sampling(budget=LONGEST))
    optimizer = AdamWConfig(3e-3, warmup_steps=20, final_fraction=0.05)
    config = SupervisedConfig(optimizer=optimizer, bin_length=LONGEST, microbatch=16)
    algorithm = config.build(policy, make_mesh(MeshConfig(data=1)), steps)
    state, rng = algorithm.init(jax.random.key(0), policy.init(jax.random.key(1))), np.random.default_rng(0)

    def shown(pair: tuple[str, str]) -> Group:
        turn = Turn((), assistant(pair[1]), (), 0.0, terminated=True)
        return Group("", (scripted_calls(Trajectory((user(pair[0]),), (turn,)), agent),))

    groups = [group for group in map(shown, pairs) if len(group.trajectories[0].calls[0].ids) <= LONGEST]
    with Runtime({}, {}, InProcess()) as runtime:
        for _ in range(steps):
            state, _ = algorithm.step(state, [groups[i] for i in rng.integers(len(groups), size=batch)], runtime)
    models.save(folder, policy, state.params)
    tokenizer.save_pretrained(folder)


def asked_before(oracle: Oracle, questions: Sequence[Question], at_once: int = 8) -> "Known":
    """All answers, several asked for at once."""
    with ThreadPoolExecutor(at_once) as threads:
        return Known(dict(zip(questions, threads.map(lambda question: oracle.answer(*question), questions))))


@dataclass(frozen=True)
class Known:
    """An oracle that was asked before."""

    answers: dict[Question, str]

    def answer(self, hidden: str, question: str) -> str:
        return self.answers[hidden, question]


def measure(ask: Ask, most: int, results: Path, model: str) -> None:
    """A line for each task and part that has none yet."""
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for name, twins in tasks().items():
        for part, questions in parted(twins).items():
            if any((one["model"], one["task"], one["part"]) == (model, name, part) for one in done):
                continue
            some, began = questions[:most], time.monotonic()
            found = agreement(twins.scripted, asked_before(twins.asked(ask), some), some)
            line = {"model": model, "task": name, "part": part, **dataclasses.asdict(found), "seconds": round(time.monotonic() - began, 1)}
            print(json.dumps(line), flush=True)
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")


async def measure_own(folder: Path, most: int, results: Path) -> None:
    async with serving(of_folder(folder, "float32", LONGEST, 16), "oracle", "127.0.0.1", 0, os.environ[KEY]) as url:
        ask = Endpoint(url, "oracle", api_key_variable=KEY, max_tokens=LONGEST)
        await asyncio.to_thread(measure, ask, most, results, "own")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/oracles"))
    parser.add_argument("--url", default="", help="of a model that is served already; it has seen nothing, whatever the lines say")
    parser.add_argument("--model", default="policy", help="its name")
    parser.add_argument("--api_key_variable", default="", help="the environment variable with its key")
    parser.add_argument("--questions", type=int, default=100, help="of each task and part")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=128, help="questions a step")
    parser.add_argument("--most", type=int, default=3000, help="questions of a task that are learned")
    f = parser.parse_args()
    f.out.mkdir(parents=True, exist_ok=True)
    results, folder = f.out / "agreement.jsonl", f.out / "model"
    if f.url:
        measure(Endpoint(f.url, f.model, api_key_variable=f.api_key_variable, max_tokens=LONGEST), f.questions, results, f.model)
        return
    if not (folder / "tokenizer.json").exists():
        train(folder, f.steps, f.batch, f.most)
    os.environ[KEY] = key_of("")
    asyncio.run(measure_own(folder, f.questions, results))


if __name__ == "__main__":
    main()

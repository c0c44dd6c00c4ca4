"""Agreement of language-model oracles with scripted ones.

    python benchmarks/studies/oracle_agreement.py [--out=runs/oracles] [--url=URL --model=NAME]

Both oracles of each dialogue task answer the same questions: in Twenty Questions a question of the
table about a thing, in Guess My City a topic's question about a city, in Car Dealer the buyer's
decision after a dialogue. Without --url a small decoder is first trained on the scripted oracles'
answers to some of these ("seen", the others are "held out"), saved as a Hugging Face folder and
served as `agentrl-serve` does. Prints a JSON line per task and part and appends it to a file;
measurements in the file are not repeated.
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

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax import models
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.context import FullHistory
from agentrl_jax.distributed.sharding import MeshConfig, make_mesh
from agentrl_jax.environment import make
from agentrl_jax.envs.lmrl.car_dealer.buyer import Buyer, LLMBuyer, ScriptedBuyer
from agentrl_jax.envs.lmrl.car_dealer.buyer_profile import BuyerProfile
from agentrl_jax.envs.lmrl.car_dealer.decision import split_decision
from agentrl_jax.envs.lmrl.guess_city import llm_oracle as city_oracle
from agentrl_jax.envs.lmrl.guess_city import scripted as scripted_city
from agentrl_jax.envs.lmrl.guess_city.knowledge import cities
from agentrl_jax.envs.lmrl.oracles import (
    ChatEndpoint,
    CompletionFunction,
    Oracle,
    measure_agreement,
)
from agentrl_jax.envs.lmrl.twenty_questions import llm_oracle as thing_oracle
from agentrl_jax.envs.lmrl.twenty_questions import scripted as scripted_thing
from agentrl_jax.envs.lmrl.twenty_questions.knowledge import all_items, attributes
from agentrl_jax.launch.api_keys import resolve_api_key
from agentrl_jax.launch.serving import served_from_folder, start_server
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.messages import assistant, user
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.tokenizers import train_bpe
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.trajectories import Group, Sampling, Trajectory, Turn
from agentrl_jax.workers.pool import InlinePool

Question = tuple[str, str]  # the hidden item, the question about it
MAX_LENGTH = 256  # tokens of a prompt and its answer
MAX_TEXTS = 5  # of a dialogue: longer ones would not fit
HELD_OUT_FRACTION = 0.1
KEY_VARIABLE = "ORACLE_AGREEMENT_KEY"


@dataclass(frozen=True)
class DecisionOracle:
    """A buyer as an oracle: its decision after one of some dialogues."""

    buyer: Buyer
    dialogues: Sequence[tuple[BuyerProfile, tuple[str, ...]]]

    def answer(self, hidden: str, question: str) -> str:
        decision = split_decision(self.buyer.reply(*self.dialogues[int(hidden)]))[1]
        return "goes on" if decision is None else "accepts" if decision.accepted else "rejects"


@dataclass(frozen=True)
class OraclePair:
    """Both oracles of a task with all questions; `scripted_text` is the scripted full answer."""

    questions: Sequence[Question]
    scripted: Oracle
    make_llm_oracle: Callable[[CompletionFunction], Oracle]
    scripted_text: Callable[[Question], str]


def sample_dialogues(count: int, seed: int = 0) -> list[tuple[BuyerProfile, tuple[str, ...]]]:
    """Dialogues of the mixture policy with the scripted buyer, each before a reply of the buyer."""
    env, dialogues, rng = make("agentrl/CarDealer-v0"), [], np.random.default_rng(seed)
    while len(dialogues) < count:
        env.reset(seed=int(rng.integers(2**31)))
        over = False
        while not over:
            text = env.scripted_policies["mixture"](env, rng)
            if len(env.talk) < MAX_TEXTS:  # pyright: ignore
                dialogues.append((env.brief, (*env.talk, " ".join(text.split()))))  # pyright: ignore
            over = any(env.step(text)[2:4])
    return dialogues[:count]


def make_oracle_pairs(num_dialogues: int = 4000) -> dict[str, OraclePair]:
    """The oracles of the three tasks, Car Dealer's with `num_dialogues` dialogues."""
    of_things = [
        (thing.listed_name, attribute.question)
        for thing in all_items()
        for attribute in attributes()
    ]
    of_cities = [
        (city.listed_name, question) for city in cities() for question in scripted_city.QUESTIONS
    ]
    thing, city, cars = (
        scripted_thing.ScriptedOracle(),
        scripted_city.ScriptedOracle(),
        sample_dialogues(num_dialogues),
    )
    return {
        "TwentyQuestions": OraclePair(
            of_things,
            thing,
            lambda ask: thing_oracle.make_llm_oracle(ask, "archer"),
            lambda q: thing.answer(*q),
        ),
        "GuessCity": OraclePair(
            of_cities, city, city_oracle.make_llm_oracle, lambda q: city.answer(*q)
        ),
        "CarDealer": OraclePair(
            [(str(i), "") for i in range(len(cars))],
            DecisionOracle(ScriptedBuyer(), cars),
            lambda ask: DecisionOracle(LLMBuyer(ask), cars),
            lambda q: ScriptedBuyer().reply(*cars[int(q[0])]),
        ),
    }


def split_questions(pair: OraclePair, seed: int = 1) -> dict[str, list[Question]]:
    """Questions in a random order: those to train a model on, and those that are held out."""
    order = [
        pair.questions[i] for i in np.random.default_rng(seed).permutation(len(pair.questions))
    ]
    held_out = round(HELD_OUT_FRACTION * len(order))
    return {"seen": order[held_out:], "held out": order[:held_out]}


def prompt_text(pair: OraclePair, question: Question) -> str:
    """The prompt of the language-model oracle."""
    prompts: list[str] = []
    pair.make_llm_oracle(lambda prompt: prompts.append(prompt) or "").answer(*question)
    return prompts[0]


def train(folder: Path, steps: int, batch: int, max_questions: int) -> None:
    """Train a decoder of half a million weights on the scripted oracles' answers.

    Uses at most `max_questions` seen questions of each task.
    """
    pairs = [
        (prompt_text(t, q), t.scripted_text(q))
        for t in make_oracle_pairs().values()
        for q in split_questions(t)["seen"][:max_questions]
    ]
    tokenizer = train_bpe((text for pair in pairs for text in pair), 1024, chat=True)
    policy = DecoderConfig(
        layers=2, width=128, hidden=256, heads=4, kv_heads=4, head_size=32
    ).build(len(tokenizer))
    agent = Agent("oracle", ChatRenderer(tokenizer), FullHistory(), Sampling(budget=MAX_LENGTH))
    optimizer = AdamWConfig(3e-3, warmup_steps=20, final_fraction=0.05)
    config = BehaviorCloningConfig(optimizer=optimizer, bin_length=MAX_LENGTH, microbatch=16)
    algorithm = config.build(policy, make_mesh(MeshConfig(data=1)), steps)
    state, rng = (
        algorithm.init(jax.random.key(0), policy.init(jax.random.key(1))),
        np.random.default_rng(0),
    )

    def to_group(pair: tuple[str, str]) -> Group:
        turn = Turn((), assistant(pair[1]), (), 0.0, terminated=True)
        return Group("", (add_demonstration_calls(Trajectory((user(pair[0]),), (turn,)), agent),))

    groups = [
        group
        for group in map(to_group, pairs)
        if len(group.trajectories[0].calls[0].ids) <= MAX_LENGTH
    ]
    with Runtime({}, {}, InlinePool()) as runtime:
        for _ in range(steps):
            state, _ = algorithm.step(
                state, [groups[i] for i in rng.integers(len(groups), size=batch)], runtime
            )
    models.save(folder, policy, state.params)
    tokenizer.save_pretrained(folder)


def query_all(
    oracle: Oracle, questions: Sequence[Question], concurrency: int = 8
) -> "CachedOracle":
    """All answers, with `concurrency` queries at once."""
    with ThreadPoolExecutor(concurrency) as threads:
        return CachedOracle(
            dict(zip(questions, threads.map(lambda question: oracle.answer(*question), questions)))
        )


@dataclass(frozen=True)
class CachedOracle:
    """An oracle with precomputed answers."""

    answers: dict[Question, str]

    def answer(self, hidden: str, question: str) -> str:
        return self.answers[hidden, question]


def measure(ask: CompletionFunction, max_questions: int, results: Path, model: str) -> None:
    """Append a line for each task and part that has none yet."""
    done = (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )
    for name, pair in make_oracle_pairs().items():
        for part, questions in split_questions(pair).items():
            if any(
                (line["model"], line["task"], line["part"]) == (model, name, part) for line in done
            ):
                continue
            some, began = questions[:max_questions], time.monotonic()
            agreement = measure_agreement(
                pair.scripted, query_all(pair.make_llm_oracle(ask), some), some
            )
            line = {
                "model": model,
                "task": name,
                "part": part,
                **dataclasses.asdict(agreement),
                "seconds": round(time.monotonic() - began, 1),
            }
            print(json.dumps(line), flush=True)
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")


async def measure_trained(folder: Path, max_questions: int, results: Path) -> None:
    async with start_server(
        served_from_folder(folder, "float32", MAX_LENGTH, 16),
        "oracle",
        "127.0.0.1",
        0,
        os.environ[KEY_VARIABLE],
    ) as url:
        ask = ChatEndpoint(url, "oracle", api_key_variable=KEY_VARIABLE, max_tokens=MAX_LENGTH)
        await asyncio.to_thread(measure, ask, max_questions, results, "own")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/oracles"))
    parser.add_argument(
        "--url",
        default="",
        help="of a model that is served already; for it all questions are unseen",
    )
    parser.add_argument("--model", default="policy", help="its name")
    parser.add_argument(
        "--api_key_variable", default="", help="the environment variable with its key"
    )
    parser.add_argument("--questions", type=int, default=100, help="of each task and part")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=128, help="questions a step")
    parser.add_argument(
        "--most", type=int, default=3000, help="questions of a task that are learned"
    )
    f = parser.parse_args()
    f.out.mkdir(parents=True, exist_ok=True)
    results, folder = f.out / "agreement.jsonl", f.out / "model"
    if f.url:
        measure(
            ChatEndpoint(
                f.url, f.model, api_key_variable=f.api_key_variable, max_tokens=MAX_LENGTH
            ),
            f.questions,
            results,
            f.model,
        )
        return
    if not (folder / "tokenizer.json").exists():
        train(folder, f.steps, f.batch, f.most)
    os.environ[KEY_VARIABLE] = resolve_api_key("")
    asyncio.run(measure_trained(folder, f.questions, results))


if __name__ == "__main__":
    main()

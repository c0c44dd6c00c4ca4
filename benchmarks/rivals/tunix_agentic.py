"""Tunix's agentic GRPO learner (google-tunix, its own sampler): one global step a line, episodes of
a fixed number of turns.

A turn ends at one of vocabulary / `new` stop ids, so it is `new` tokens long in the mean: without
stop ids the first turn would take the whole budget of the episode. Each call gets a seed of its
own: left alone, 0.1.7 draws the same noise for every call, so that all members of a group write the
same tokens and there is nothing to learn.
"""

import dataclasses
import inspect
import os
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
from measurer import Pipe, parse_flags
from tunix.rl import rl_cluster
from tunix.rl.agentic import agentic_grpo_learner as agentic
from tunix.rl.agentic.environments.base_environment import BaseTaskEnv, EnvStepResult
from tunix.rl.rollout.base_rollout import RolloutConfig
from tunix_model import Bytes, CompileTimer, build_model, parameter_count


class Chat:
    """The smallest chat template: a letter for the role, the text, a line feed."""

    assistant_token = "A:"

    def parse(
        self, messages: Any, add_generation_prompt: bool = False, is_first_msg: bool = False
    ) -> str:
        text = "".join(f"{m['role'][0].upper()}:{m['content']}\n" for m in messages)
        return text + (self.assistant_token if add_generation_prompt else "")

    def update_assistant_end_tokens(self, tokens: Any) -> tuple[Any, int]:
        return tokens, 0


class Relay(BaseTaskEnv):
    """Opens with its task's text, answers with letters until `max_steps`; pays for the letter
    'a'.
    """

    reply = ""

    def _initial_observation(self) -> str:
        return str(self.task["prompts"])

    def _step_impl(self, action: Any) -> EnvStepResult:
        text = str(getattr(action, "action", action))
        return EnvStepResult(
            self.reply, float(text.count("a")), self.step_count >= self.max_steps, {}
        )


def main() -> None:
    args = parse_flags(
        __doc__, prompts=2, group=4, turns=3, prompt=12, new=21, observation=10, warm=1
    )
    pipe, compiling = Pipe(), CompileTimer()
    Relay.reply = "a" * max(1, args.observation - 5)  # without "U:" and "\nA:"
    opening, rng = max(1, args.prompt - 6), np.random.default_rng(0)  # without these and BOS
    response = args.turns * (2 * args.new + args.observation)
    done = {"tokens": 0, "prefill": 0, "calls": 0, "largest_batch": 0}

    with jax.make_mesh(
        (1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    ) as mesh:
        (_, model), (_, reference) = build_model(args), build_model(args)
        roles = rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT
        engine_kind = (
            getattr(rl_cluster, "RLEngine", None) or rl_cluster.RLCluster
        )  # renamed after 0.1.7
        engine = engine_kind(
            actor=model,
            reference=reference,
            tokenizer=Bytes(),
            cluster_config=rl_cluster.ClusterConfig(
                role_to_mesh=dict.fromkeys(roles, mesh),
                rollout_engine="vanilla",
                offload_to_cpu=False,
                training_config=rl_cluster.RLTrainingConfig(
                    actor_optimizer=optax.adamw(1e-5), eval_every_n_steps=10**9, max_steps=10**9
                ),
                rollout_config=RolloutConfig(
                    max_tokens_to_generate=response,
                    max_prompt_length=args.prompt + response,
                    kv_cache_size=args.prompt + 2 * response,
                    temperature=1.0,
                    eos_tokens=list(range(args.vocab - args.vocab // args.new, args.vocab)),
                    return_logprobs=True,
                ),
            ),
        )
        inner, seeds = engine.rollout.generate, iter(range(10**9))

        def counting_generate(prompts: Any, config: Any, **options: Any) -> Any:
            done["calls"] += 1
            out = inner(prompts, dataclasses.replace(config, seed=next(seeds)), **options)
            done["largest_batch"] = max(done["largest_batch"], len(out.tokens))
            done["tokens"] += sum(map(len, out.tokens))
            done["prefill"] += int(np.size(out.left_padded_prompt_tokens))
            return out

        engine.rollout.generate = counting_generate
        first = list(inspect.signature(agentic.GRPOLearner.__init__).parameters)[1]
        learner = agentic.GRPOLearner(
            **{first: engine},
            chat_parser=Chat(),
            env_class=Relay,
            env_kwargs={"max_steps": args.turns},
            reward_fns=lambda prompts, completions, trajectory_rewards=None, **_: list(
                trajectory_rewards or [0.0] * len(completions)
            ),
            algo_config=agentic.GRPOConfig(
                num_generations=args.group,
                max_response_length=response,
                beta=0.0,
                max_concurrency=args.prompts * args.group,
            ),
        )

        def batches_on_request() -> Iterator[dict[str, np.ndarray]]:
            """The learner asks for the next batch when it has trained on the last one."""
            for step in range(10**9):
                if step == args.warm:
                    pipe.send_ready(
                        ("google-tunix", "jax"),
                        params=parameter_count(model),
                        plays={
                            "turns": args.turns,
                            "prompt": args.prompt,
                            "new": args.new,
                            "observation": args.observation,
                        },
                    )
                if step >= args.warm and not pipe.wait_for_request():
                    os._exit(0)  # the learner has threads that wait for each other
                done.update(dict.fromkeys(done, 0))
                compiled, began = compiling.count, time.perf_counter()
                yield {
                    "prompts": np.array(
                        [
                            "".join(rng.choice(list("abcdefgh"), opening))
                            for _ in range(args.prompts)
                        ]
                    )
                }
                if step >= args.warm:
                    seconds = time.perf_counter() - began
                    pipe.send(
                        {
                            "seconds": seconds,
                            "seconds_without_compiling": seconds - compiling.seconds_since(began),
                            "compilations": compiling.count - compiled,
                            "sampled_tokens": done["tokens"],
                            "prefill_tokens": done["prefill"],
                            "model_calls": done["calls"],
                            "largest_batch": done["largest_batch"],
                        }
                    )

        learner.train(batches_on_request())


if __name__ == "__main__":
    main()

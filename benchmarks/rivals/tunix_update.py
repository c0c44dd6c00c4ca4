"""Tunix's GRPO update (google-tunix, `RLCluster.update_actor`): one optimizer step on a padded
batch a line, no rollout.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
from measurer import Pipe, parse_flags
from tunix.rl import rl_cluster
from tunix.rl.grpo import grpo_learner
from tunix.rl.rollout import base_rollout
from tunix_model import Bytes, build_model, parameter_count


def main() -> None:
    args, pipe = parse_flags(__doc__, batch=16, prompt=64, new=64, group=4, shortest=0), Pipe()
    mesh = jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    with mesh:
        _, model = build_model(args)
        Engine = getattr(rl_cluster, "RLEngine", None) or rl_cluster.RLCluster
        roles = (rl_cluster.Role.ACTOR, rl_cluster.Role.REFERENCE, rl_cluster.Role.ROLLOUT)
        engine = Engine(
            actor=model,
            reference=None,
            tokenizer=Bytes(),
            cluster_config=rl_cluster.ClusterConfig(
                role_to_mesh=dict.fromkeys(roles, mesh),
                rollout_engine="vanilla",
                offload_to_cpu=False,
                training_config=rl_cluster.RLTrainingConfig(
                    actor_optimizer=optax.adamw(1e-5), eval_every_n_steps=10**6, max_steps=10**6
                ),
                rollout_config=base_rollout.RolloutConfig(
                    max_tokens_to_generate=args.new,
                    max_prompt_length=args.prompt,
                    kv_cache_size=args.prompt + args.new,
                    temperature=1.0,
                    return_logprobs=True,
                ),
            ),
        )
        first = list(inspect.signature(grpo_learner.GRPOLearner.__init__).parameters)[1]
        grpo_learner.GRPOLearner(
            **{first: engine},
            reward_fns=lambda prompts, completions, **_: [0.0] * len(completions),
            algo_config=grpo_learner.GRPOConfig(
                num_generations=args.group, num_iterations=1, beta=0.0
            ),
        )
        rng = np.random.default_rng(0)

        def repeat() -> dict[str, float]:
            prompts, shape = (args.batch, args.prompt), (args.batch, args.new)
            lengths = (
                rng.integers(args.shortest, args.new + 1, args.batch)
                if args.shortest
                else np.full(args.batch, args.new)
            )
            example = grpo_learner.TrainExample(
                prompt_ids=jnp.asarray(rng.integers(3, 250, prompts)),
                prompt_mask=jnp.ones(prompts, bool),
                completion_ids=jnp.asarray(rng.integers(3, 250, shape)),
                completion_mask=jnp.asarray(np.arange(args.new) < lengths[:, None]),
                advantages=jnp.asarray(rng.normal(size=args.batch), jnp.float32),
                ref_per_token_logps=None,
                old_per_token_logps=None,
            )
            engine.update_actor([example], None, False)
            jax.block_until_ready(jax.tree.leaves(engine.actor_trainer.model))
            return {"sampled_tokens": int(args.prompt * args.batch + lengths.sum())}

        for _ in range(2):
            repeat()
        pipe.send_ready(("google-tunix", "jax"), params=parameter_count(model))
        pipe.serve(repeat)


if __name__ == "__main__":
    main()

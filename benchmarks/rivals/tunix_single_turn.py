"""Tunix's sampler (google-tunix, `tunix.generate.sampler`): one batch of prompts to exactly `new`
tokens each, a line a repeat.
"""

import jax
import numpy as np
from measurer import Pipe, parse_flags
from tunix.generate.sampler import CacheConfig, Sampler
from tunix_model import Bytes, build_model, parameter_count


def main() -> None:
    args, pipe = parse_flags(__doc__, batch=16, prompt=64, new=64), Pipe()
    rng = np.random.default_rng(0)
    prompts = [
        "".join(rng.choice(list("abcdefgh "), args.prompt - 1)) for _ in range(args.batch)
    ]  # one more for BOS
    with jax.make_mesh((1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2):
        config, model = build_model(args)
        cache = CacheConfig(
            args.prompt + args.new, config.num_layers, config.num_kv_heads, config.head_dim
        )
        sampler, seed = Sampler(model, Bytes(), cache), iter(range(10**9))

        def repeat() -> dict[str, float]:
            out = sampler(
                prompts,
                max_generation_steps=args.new,
                max_prompt_length=args.prompt,
                temperature=1.0,
                top_p=1.0,
                seed=next(seed),
                eos_tokens=[args.vocab],
                return_logprobs=True,
            )
            return {
                "sampled_tokens": sum(map(len, out.tokens)),
                "prefill_tokens": args.prompt * args.batch,
            }

        for _ in range(2):
            repeat()
        pipe.send_ready(("google-tunix", "jax"), params=parameter_count(model))
        pipe.serve(repeat)


if __name__ == "__main__":
    main()

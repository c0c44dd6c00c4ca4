"""SimpleTIR (arXiv 2509.02479) on outputs of code within noise.

Each output stands within 8 characters of noise, and texts are sampled at temperature 1.2: turns
without code or answer (void ones) are frequent. At 1e-3, five times the rate of the other
experiments on code, training on trajectories with void turns too (`:base`) is unstable. `:pair`
trains both from one fine-tuning, `:smoke` takes two steps of each phase.

Hardware: 2 CPU cores; time: `:pair` 6 minutes on one of them

    agentrl-train --config=configs/code_simpletir.py[:base|pair]
"""

from agentrl_jax.algorithms.methods.tool_use import simpletir
from agentrl_jax.configs.code_task import TRAINING_SETTINGS, code_experiment
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    drop_void = pick(variant, "code_simpletir", method=True, base=False, smoke=True)
    smoke, optimizer = variant == "smoke", AdamWConfig(1e-3, warmup_steps=3)
    config = code_experiment(
        f"code-simpletir-{variant}",
        simpletir(drop_void, **TRAINING_SETTINGS | {"optimizer": optimizer}),
        rollouts(tasks=2 if smoke else 8, group_size=4),
        {"protocol": "simpletir", "noise": 8},
        smoke,
    )
    config.agent.temperature = 1.2
    return config

"""AdamW with warmup, cosine decay and gradient clipping, from optax."""

from dataclasses import dataclass

import optax

from agentrl_jax.errors import UserError


@dataclass
class AdamWConfig:
    """AdamW after clipping by the global norm."""

    learning_rate: float = 3e-4
    warmup_steps: int = 0
    # Of the learning rate at the last step, reached by cosine decay; 1: constant.
    final_fraction: float = 1.0
    b1: float = 0.9
    b2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0  # global norm

    def build(self, steps: int) -> optax.GradientTransformation:
        """The transformation for a run of `steps` optimizer steps. Raises UserError."""
        if (
            self.learning_rate <= 0
            or self.clip_norm <= 0
            or not 0 <= self.final_fraction <= 1
            or self.warmup_steps < 0
        ):
            raise UserError(
                "AdamW needs learning_rate, clip_norm > 0, 0 <= final_fraction <= 1, "
                f"warmup_steps >= 0: {self}"
            )
        decay_steps = max(1, steps - self.warmup_steps)
        schedule = optax.join_schedules(
            [
                optax.linear_schedule(0.0, self.learning_rate, max(1, self.warmup_steps)),
                optax.cosine_decay_schedule(self.learning_rate, decay_steps, self.final_fraction),
            ],
            [self.warmup_steps],
        )
        return optax.chain(
            optax.clip_by_global_norm(self.clip_norm),
            optax.adamw(schedule, self.b1, self.b2, self.eps, weight_decay=self.weight_decay),
        )

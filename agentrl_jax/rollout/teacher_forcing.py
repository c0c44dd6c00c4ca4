"""Calls for demonstrations: teacher forcing of a scripted policy's actions."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.messages import Message
from agentrl_jax.renderer import TokenIds
from agentrl_jax.rollout.agent import Agent, PromptBuilder
from agentrl_jax.rollout.agent_session import with_call_names
from agentrl_jax.trajectories import Call, Trajectory, Turn


def add_demonstration_calls(trajectory: Trajectory, agent: Agent) -> Trajectory:
    """The trajectory with the calls that the agent would have made to act so.

    Their source is "demonstration", their sampler log-probs are 0 and their temperature is 1. The
    prompts and bridges are those of sampled calls, so demonstrations and samples have one form.
    Raises UserError where the agent's context requests notes and has none for demonstrations.
    """
    agent = agent.for_task(trajectory.task)
    builder = PromptBuilder(agent, trajectory.opening, trajectory.tools)
    turns: list[Turn] = []
    for turn in trajectory.turns:
        calls: list[Call] = []
        notes: list[Message] = []
        names: list[str] = []
        while True:
            ids, parent, request = builder.next_prompt(turns, notes)
            note: Message | None = None
            if request is not None:
                note = agent.context.demonstrated_note(
                    trajectory.opening, turns, notes, turn.action
                )
                if request.model and note is not None:  # another model's: no call of the agent
                    notes.append(note)
                    continue
            message = agent.renderer.as_written(turn.action if note is None else note)
            call = _demonstration_call(agent, ids, message, parent, builder.images)
            builder.add_call(call, message)
            calls.append(call)
            if note is None or request is None:
                break
            notes.append(message)
            names.append(request.name)
        action = agent.renderer.as_written(turn.action)
        turns.append(
            dataclasses.replace(
                turn,
                calls=tuple(calls),
                action=action,
                notes=tuple(notes),
                info=with_call_names(turn.info, names),
            )
        )
    return trajectory.replace(turns=tuple(turns))


def _demonstration_call(
    agent: Agent,
    ids: TokenIds,
    message: Message,
    parent: Call | None,
    images: Sequence[PromptImage],
) -> Call:
    """A call that answers this message to the prompt."""
    action = agent.renderer.action_ids(message)
    return Call(
        prompt=ids,
        action=action,
        sampler_logp=np.zeros(len(action), np.float32),
        version=np.full(len(action), -1, np.int32),
        sampling=dataclasses.replace(agent.sampling, temperature=1.0),
        finish_reason="stop",
        source="demonstration",
        image_spans=tuple((image.start, image.end) for image in images),
        images=tuple(image.image.part for image in images),
        parent=parent,
    )

"""Examples for a fine-tuning: the episodes themselves, or prompts with answers made of them."""

from support.strategy_runs import (
    AGENT,
    RENDERER,
    FixedGroups,
    KeyedTextEngine,
    chain_task,
    collect_group,
)

from agentrl_jax.algorithms.strategies.episode_examples import EpisodeExampleIterator
from agentrl_jax.messages import user
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.training.rollout_metrics import episode_stats
from agentrl_jax.trajectories import Group


def expert_group() -> Group:
    """An episode of four turns, without calls."""
    group = collect_group(ScriptedEpisodes("expert"), KeyedTextEngine(), chain_task())
    (trajectory,) = group.trajectories
    assert len(trajectory.turns) == 4 and not trajectory.calls
    return group


def test_every_turn_of_an_episode_is_demonstrated_after_what_was_seen():
    group = expert_group()
    rollouts = FixedGroups([group])
    iterator = EpisodeExampleIterator(None, rollouts, AGENT)
    ((demonstration,),) = (g.trajectories for g in iterator.next(0))
    (episode,) = group.trajectories
    assert [turn.action.text for turn in demonstration.turns] == [
        turn.action.text for turn in episode.turns
    ]
    text, decode = episode.opening[0].text, RENDERER.codec.decode
    for turn, call in zip(episode.turns, demonstration.calls):
        assert call.source == "demonstration"
        assert decode(tuple(call.prompt.tolist())) == text
        assert decode(tuple(call.action.tolist())) == f"{turn.action.text}\n"
        text += f"{turn.action.text}\n{''.join(message.text for message in turn.observation)}"
    assert episode_stats(iterator.next(1)) == []  # they do not count as rollouts
    iterator.load(iterator.state())
    assert rollouts.loaded == {"step": 3}


def test_a_function_makes_several_examples_of_an_episode():
    group = expert_group()
    iterator = EpisodeExampleIterator(
        lambda episode: [
            ((user(f"turn {i}?\n"),), t.action.text) for i, t in enumerate(episode.turns)
        ],
        FixedGroups([group]),
        AGENT,
    )
    examples = [trajectory for g in iterator.next(0) for trajectory in g.trajectories]
    prompts = [RENDERER.codec.decode(tuple(t.calls[0].prompt.tolist())) for t in examples]
    assert prompts == [f"turn {i}?\n" for i in range(4)]
    assert [len(t.turns) for t in examples] == [1] * 4

"""One episode of a game: who is to speak is asked, whoever speaks is answered when it is its turn again."""

from collections.abc import Mapping

from agentrl_jax.engine import Engine
from agentrl_jax.episodes import trajectory_of
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.messages import Message, assistant
from agentrl_jax.speaking import Agent, Speaker, Watch, unwatched
from agentrl_jax.trajectories import Episode, Key
from agentrl_jax.workers import World

SILENCE = assistant("")  # of a seat that has left, and of one that was told the end


async def play_match(
    world: World, agents: Mapping[int, Agent], engines: Mapping[str, Engine], key: Key, sample: int = 0, watch: Watch = unwatched
) -> Episode:
    """Play one episode with an agent in each of these seats; `key` is (run, step, task, sample).

    The world says in `info["seat"]` (0 where it does not) whom each reply is for. A seat whose limits have stopped it says nothing from
    there on, and the game moves for it. Raises EnvironmentFailure where the world fails, speaks to nobody's seat, or anybody is late.
    """
    speakers: dict[int, Speaker] = {}
    said: dict[int, Message] = {}
    with watch(0, world.where):
        messages, info = await world.reset()
    reward, terminated, truncated = 0.0, False, False
    try:
        while True:
            seat = info.get("seat", 0)
            if seat not in agents:
                raise EnvironmentFailure(f"the world speaks to seat {seat}, where nobody from here sits", "nonsense")
            speaker = speakers.get(seat)
            if speaker is None:
                agent = agents[seat]
                speaker = Speaker(agent, engines[agent.engine], key, messages, world.deadlines.turn, seat, watch)
                speakers[seat] = speaker
                if terminated or truncated:
                    speaker.stop = "terminated" if terminated else "truncated"
            elif speaker.stop is None:
                speaker.hear(said[seat], messages, reward, terminated, truncated, info)
            action = await speaker.say() if speaker.stop is None else None
            if len(speakers) == len(agents) and all(one.stop for one in speakers.values()):
                break
            said[seat] = SILENCE if action is None else action
            with watch(len(speaker.turns), world.where):
                messages, reward, terminated, truncated, info = await world.step(said[seat])
    finally:
        for speaker in speakers.values():
            speaker.close()
    seats = []
    for seat, speaker in sorted(speakers.items()):
        assert speaker.stop is not None
        seats.append(trajectory_of(world, speaker.opening, speaker.turns, sample, speaker.agent.name, speaker.stop, seat))
    return Episode(world.task.seed, tuple(seats))

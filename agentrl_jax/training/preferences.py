"""Preference pairs from files and datasets: groups of two trajectories with returns 1 and 0."""

from dataclasses import dataclass, field
from pathlib import Path

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.formats.dataset_rows import is_preference, preference_of_columns
from agentrl_jax.formats.field_checks import FieldError, check_object, parse_json
from agentrl_jax.formats.preference_record import parse_preference_line
from agentrl_jax.formats.record_source import IndexedSource
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.training.config import ExperienceIterator, RunContext
from agentrl_jax.training.data_files import open_parsed
from agentrl_jax.training.demonstrations import check_budget
from agentrl_jax.training.shuffled_batches import ShuffledBatches
from agentrl_jax.trajectories import Group


def open_preferences(path: Path) -> IndexedSource[Group]:
    """Pairs by index, the preferred trajectory first (docs/data_formats.md).

    Args:
        path: a JSONL, Parquet or Arrow file, a dataset folder of Hugging Face, or a dataset of
            tensorflow_datasets; "folder#test" names another split than train.

    Raises:
        UserError: there is none, or it is empty or damaged.
    """
    source = open_parsed(path, parse_preference_line, preference_of_columns)
    if source is None:
        raise UserError(
            f"{path} holds no preferences: name a .jsonl, .parquet or .arrow file or a folder of "
            "them"
        )
    return source


def holds_preferences(path: Path) -> bool:
    """Whether the first record of a source is of preferences.

    Raises:
        UserError: the source is missing, empty or damaged.
    """
    source = open_parsed(path, _is_preference_line, is_preference)
    return source is not None and source[0]


def _is_preference_line(line: str) -> bool:
    try:
        return is_preference(check_object(parse_json(line), ""))
    except FieldError:  # the reader of the line names what is wrong
        return False


@dataclass
class Preferences:
    """Shuffled batches of preference pairs, for `dpo` and for a reward model.

    The two trajectories of a group have one prompt, and returns 1 (the preferred one, first) and 0.
    """

    path: str  # see `open_preferences`
    batch: int = 32  # pairs per step
    on_policy: bool = field(default=False, init=False)

    def open(self, run: RunContext) -> ExperienceIterator:
        return PreferenceIterator(
            Path(self.path),
            run.agent,
            self.batch,
            seed_of(run.experiment.seed, 1),
            run.process_group,
        )


class PreferenceIterator(ShuffledBatches):
    """Endless shuffled batches of pairs with their calls."""

    def __init__(
        self,
        path: Path,
        agent: Agent,
        batch: int,
        seed: int,
        process_group: ProcessGroup | None = None,
    ) -> None:
        """Open the pairs; the arguments are those of `Preferences` and `DemonstrationIterator`.

        Raises:
            UserError: they are fewer than a batch.
        """
        pairs = open_preferences(path)
        if len(pairs) < batch:
            raise UserError(f"{path} holds {len(pairs)} pairs, fewer than one batch of {batch}")

        def load_group(index: int) -> Group:
            group = pairs[index]
            trajectories = [add_demonstration_calls(t, agent) for t in group.trajectories]
            for trajectory in trajectories:
                check_budget(trajectory, agent)
            return Group(group.task, tuple(trajectories))

        super().__init__(range(len(pairs)), batch, seed, load_group, process_group)

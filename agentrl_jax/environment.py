"""`Environment`: a Gymnasium environment whose actions and observations are chat messages."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from agentrl_jax.context import ContextManager, FullHistory
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import Message, assistant

Messages = tuple[Message, ...]
# A scripted policy reads the environment itself, hidden state included, and returns an action: its
# text, or a message where it calls tools. Its first parameter is the environment class that lists
# it in `scripted_policies`.
ScriptedPolicy = Callable[[Any, np.random.Generator], str | Message]


class MessageSpace(spaces.Space):
    """Any chat message (`many=False`, an action) or tuple of them (`many=True`, an observation).

    `spaces.Text` would reject spaces and line feeds; here any text is a member, and samples are
    short printable texts.
    """

    def __init__(self, many: bool = False, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(None, None, seed)
        self.many = many

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        codes = self.np_random.integers(32, 127, size=int(self.np_random.integers(0, 24)))
        message = assistant("".join(map(chr, codes)))
        return (message,) if self.many else message

    def contains(self, x: Any) -> bool:
        if self.many:
            return isinstance(x, tuple) and all(isinstance(m, Message) for m in x)
        return isinstance(x, Message | str)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def to_jsonable(self, sample_n: Any) -> list[Any]:
        return [[m.to_dict() for m in x] if self.many else x.to_dict() for x in sample_n]

    def from_jsonable(self, sample_n: Any) -> list[Any]:
        return [
            tuple(map(Message.from_dict, x)) if self.many else Message.from_dict(x)
            for x in sample_n
        ]

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, MessageSpace) and other.many == self.many

    def __repr__(self) -> str:
        return f"MessageSpace(many={self.many})"


class Environment(gymnasium.Env):
    """A text environment.

    Subclasses define `_reset` and `_step`, never handle tokens, and draw random numbers only from
    `self.np_random`. One that reads more of an action than its text, such as tool calls, defines
    `_step_message` instead of `_step`.

    `reset(seed=, options=)` returns the opening messages; `step(action)` returns the new messages
    only, the reward, and `terminated` / `truncated`. An illegal text gets an observation, never an
    exception. `info["rewards"]` holds the named components of the reward, and `info["success"]` is
    set once the episode is over. Stepping a finished episode raises `EnvironmentFailure`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}
    rules: str = ""  # for a person who plays
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = {}  # at least "random" and "expert"
    context: ContextManager = FullHistory()  # the agents' default view of the history
    reward_bounds: tuple[float, float] = (-np.inf, np.inf)  # of one step
    score_anchors: tuple[float, float, float] | None = None  # mean returns that score 0, 50 and 100
    program_options: ClassVar[tuple[str, ...]] = ()  # options of the constructor that name programs
    server_options: ClassVar[tuple[str, ...]] = ()  # and servers

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = MessageSpace(many=True)
        self.action_space = MessageSpace()
        self._is_over = True
        self._seed: int | None = None
        self._options: dict[str, Any] | None = None
        self._opening: Messages = ()
        self._step_history: list[tuple[Message, Messages]] = []

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        """Start an episode; returns the opening messages and info.

        Raises:
            UserError: an option is unknown.
        """
        raise NotImplementedError(f"{type(self).__name__} must define _reset")

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        """Process an action text, without its stop token; returns what `step` does."""
        raise NotImplementedError(f"{type(self).__name__} must define _step")

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        """Process an action message; returns what `step` does."""
        return self._step(message.text)

    def actions(self) -> Sequence[str] | None:
        """The legal action texts, where they are few enough to list; None: not listed."""
        return None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Messages, dict[str, Any]]:
        super().reset(seed=seed)
        self._seed = self.np_random_seed if seed is None and self._seed is None else seed
        self._options, self._step_history = options, []
        self._opening, info = self._reset(dict(options or {}))
        self._is_over = False
        return self._opening, info

    def step(self, action: Message | str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        if self._is_over:
            raise EnvironmentFailure("the episode is over (or never began): call reset() first")
        message = assistant(action) if isinstance(action, str) else action
        observation, reward, terminated, truncated, info = self._step_message(message)
        self._is_over = terminated or truncated
        self._step_history.append((message, observation))
        info = {"rewards": {"task": float(reward)}, **info}
        return observation, float(reward), terminated, truncated, info

    def render(self) -> str:
        """The transcript so far."""
        parts = [m.text for m in self._opening]
        for action, observation in self._step_history:
            calls = [f"{call.name}({call.arguments})" for call in action.tool_calls]
            parts += [action.text, *calls, *(m.text for m in observation)]
        return "".join(part if part.endswith("\n") else part + "\n" for part in parts)

    def fork(self, turn: int | None = None) -> "Environment":
        """A fresh environment at the same point: same seed, recorded actions replayed.

        The replayed observations must equal the recorded ones. Environments that can copy their
        state may override this.

        Args:
            turn: how many actions to replay; None: all of them.

        Raises:
            EnvironmentFailure: the replay differs, or the environment was reset without a seed.
        """
        if self._seed is None:
            raise EnvironmentFailure("only an environment that was reset with a seed can be forked")
        assert self.spec is not None, "fork needs an environment made by gymnasium.make"
        fork = gymnasium.make(self.spec).unwrapped
        assert isinstance(fork, Environment)
        opening, _ = fork.reset(seed=self._seed, options=self._options)
        is_same = opening == self._opening
        for action, observation in self._step_history[:turn]:
            is_same = is_same and fork.step(action)[0] == observation
        if not is_same:
            raise EnvironmentFailure(
                f"{type(self).__name__} is not deterministic under its seed: the replay differs"
            )
        return fork


class NoEnvironment(Environment):
    """What stands where an experiment has no environment and trains on files alone."""

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        raise UserError(
            "the experiment has no environment to play in: set config.environment.name, or train "
            "on demonstrations and preferences alone"
        )


def environment_class(name: str) -> type[Environment] | None:
    """The class of a registered environment; the module that registers it, and that of the class,
    are imported. None where there is no such environment.
    """
    module, _, identifier = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        entry_point = gymnasium.spec(identifier).entry_point
    except (gymnasium.error.Error, ImportError):
        return None
    if isinstance(entry_point, str):
        module, _, class_name = entry_point.partition(":")
        entry_point = getattr(importlib.import_module(module), class_name)
    if isinstance(entry_point, type) and issubclass(entry_point, Environment):
        return entry_point
    return None


def make(name: str, options: Mapping[str, Any] | None = None) -> Environment:
    """The registered environment, unwrapped; without a name, `NoEnvironment`.

    Raises:
        UserError: the id is not registered, or the environment rejects an option.
    """
    if not name:
        return NoEnvironment()
    try:
        env = gymnasium.make(name, disable_env_checker=True, **dict(options or {})).unwrapped
    except ModuleNotFoundError as error:
        raise UserError(
            f"the environment {name!r} cannot be made ({error}): is the folder of its module on "
            "PYTHONPATH?"
        ) from error
    except gymnasium.error.Error as error:
        known = sorted(key for key in gymnasium.registry if key.startswith("agentrl/"))
        raise UserError(
            f"no environment is called {name!r}; there are {', '.join(known)}"
        ) from error
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} does not take the options {dict(options or {})}: {error}"
        ) from error
    if not isinstance(env, Environment):
        raise UserError(
            f"{name} is not a message environment: subclass agentrl_jax.environment.Environment"
        )
    return env


def normalized_score(mean_return: float, anchors: tuple[float, float, float]) -> float:
    """LMRL-Gym's score: 0 at the worst, 50 at the dataset's mean and 100 at the best return.

    score = max(0, 50 (x - min) / (mean - min))      for x < mean
          = 50 + 50 (x - mean) / (max - mean)        otherwise
    """
    low, mean, high = anchors
    if mean_return < mean:
        return max(0.0, 50 * (mean_return - low) / (mean - low))
    return 50 + 50 * (mean_return - mean) / (high - mean)

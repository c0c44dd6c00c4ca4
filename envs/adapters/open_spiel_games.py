"""Games of OpenSpiel as texts: loading, which string a player reads, and moves by text."""

from collections import Counter
from typing import Any

from agentrl_jax.envs.adapters.packages import import_package, shortened
from agentrl_jax.errors import UserError

VIEWS = ("auto", "information_state", "observation")


def import_pyspiel() -> Any:
    """The module of OpenSpiel. Raises UserError where it is not installed."""
    return import_package("pyspiel", "open-spiel")


def load_game(name: str, seed: int | None = None) -> Any:
    """A game in which one player moves at a time.

    Args:
        name: OpenSpiel's, with parameters: `leduc_poker(players=3)`.
        seed: of games that draw from a generator of their own and whose name sets no `rng_seed`.

    Raises:
        UserError: there is no such game, or it has no legal actions of single players.
    """
    library = import_pyspiel()
    try:
        game = library.load_game_as_turn_based(name)
        parameters = dict(library.game_parameters_from_string(name))
        if seed is not None and has_own_generator(game) and "rng_seed" not in parameters:
            short_name = parameters.pop("name")
            game = library.load_game(short_name, {**parameters, "rng_seed": seed})
        game.new_initial_state().legal_actions()
    except (library.SpielError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"the game {name!r} of OpenSpiel cannot be played: {error}") from error
    if game.get_type().dynamics == library.GameType.Dynamics.MEAN_FIELD:
        raise UserError(f"{name} is a mean-field game, in which no player moves alone")
    return game


def has_own_generator(game: Any) -> bool:
    """Whether a game draws from a generator of its own, with the parameter `rng_seed`."""
    return "rng_seed" in game.get_type().parameter_specification


def has_perfect_information(game: Any) -> bool:
    return game.get_type().information == import_pyspiel().GameType.Information.PERFECT_INFORMATION


def view_of(game: Any, view: str) -> str:
    """The view that a game has: one of `VIEWS` but `auto`.

    `auto` is the observation where all is visible, else the information state, whichever there is.

    Raises:
        UserError: the game has not that view, or none.
    """
    has = {
        "observation": game.get_type().provides_observation_string,
        "information_state": game.get_type().provides_information_state_string,
    }
    order = [view]
    if view == "auto":
        order = ["observation", "information_state"][:: 1 if has_perfect_information(game) else -1]
    for name in order:
        if has[name]:
            return name
    raise UserError(f"OpenSpiel's {game} has no text of the view {view!r}")


def shows_everything(game: Any, view: str) -> bool:
    """Whether the last text of a view holds all that its player knows."""
    return view == "information_state" or has_perfect_information(game)


def payoff_bounds(game: Any) -> tuple[float, float]:
    """The least and the most that a player's return changes by between two of its turns."""
    low, high = float(game.min_utility()), float(game.max_utility())
    if game.get_type().reward_model == import_pyspiel().GameType.RewardModel.TERMINAL:
        return min(low, 0.0), max(high, 0.0)
    return low - high, high - low


def moves_of(state: Any) -> dict[str, int]:
    """The legal actions of the player to move by text; actions of one text get their numbers."""
    player, actions = state.current_player(), state.legal_actions()
    texts = [" ".join(state.action_to_string(player, a).split()) for a in actions]
    counts = Counter(texts)
    return {text if counts[text] == 1 else f"{text} #{a}": a for text, a in zip(texts, actions)}


def decision_text(state: Any, view: str, max_listed: int) -> str:
    """What the player to move reads, without the last line feed: its view, then its moves."""
    player = state.current_player()
    read = state.observation_string if view == "observation" else state.information_state_string
    text = read(player).strip("\n")
    moves = f"Moves: {shortened(list(moves_of(state)), max_listed)}" if max_listed else ""
    return "\n".join(filter(None, (text, moves)))

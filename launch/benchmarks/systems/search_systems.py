"""Systems that search for what they answer (docs/search.md)."""

from agentrl_jax.launch.benchmarks.systems.system import System

ENVIRONMENTS = ("SearchQuestions",)
SEARCH_SYSTEMS = (
    System(
        "Search-R1",
        "2503.09516",
        "`SearchQuestions` with its tags, observations without loss",
        "Wikipedia with dense passages, questions of seven data sets",
        ("search_r1",),
        ("search_r1.py",),
        "own kind",
        ENVIRONMENTS,
    ),
    System(
        "Search Self-play",
        "2510.18821",
        "`SearchProposals`, `ProposerSolver` with its check, pool and rewards of both roles",
        "Wikipedia with dense passages, 50,000 answers, a large model as judge",
        ("search_self_play",),
        ("search_selfplay.py",),
        "own kind",
        ("SearchProposals", *ENVIRONMENTS),
        ("selfplay_check",),
    ),
    System(
        "AI-SearchPlanner",
        "2508.20368",
        "`SearchQuestions` with a planner's actions, `AnswerScore` of a `FrozenPolicy`, "
        "`YesProbability` of the plan, the cost of turns and queries",
        "Wikipedia, a reader of 32 billion weights, a large model as judge; its own tags and "
        "weights, which are not published",
        ("ai_search_planner",),
        ("search_planner.py",),
        "own kind",
        ENVIRONMENTS,
        ("planner_reward",),
    ),
    System(
        "Chain-of-Agents (AFM)",
        "2508.13167",
        "`SearchQuestions` with its roles and their order, a scripted team whose transcripts are "
        "distilled, DAPO",
        "web pages, code and images as tools, teams of large models, a judge",
        ("chain_of_agents",),
        ("search_afm.py",),
        "own kind",
        ENVIRONMENTS,
    ),
)

"""Systems that solve problems with code (docs/code.md) or queries (docs/sql.md)."""

from agentrl_jax.launch.benchmarks.systems.system import System

ENVIRONMENTS = ("CodeProblems",)
CODE_SYSTEMS = (
    System(
        "MINT",
        "2309.10691",
        "`CodeProblems` with its tags, budgets and critic by rules, `ModelFeedback`",
        "its tasks of seven data sets, success rates of large models",
        (),  # a benchmark
        ("code_mint.py",),
        "own kind",
        ENVIRONMENTS,
        ("mint_feedback",),
    ),
    System(
        "R1-Code-Interpreter",
        "2505.21668",
        "`CodeProblems`, `FencedCodeToolFormat`, `PotentialStages`",
        "its 144 tasks, demonstrations of a large model, rates measured before training",
        ("r1_code_interpreter",),
        ("code_r1ci.py",),
        "own kind",
        ENVIRONMENTS,
        ("r1ci_stages",),
    ),
    System(
        "ReTool",
        "2504.11536",
        "`CodeProblems`, `TagToolFormat`, its reward of failures",
        "mathematical competitions, its demonstrations",
        ("retool",),
        ("code_retool.py",),
        "own kind",
        ENVIRONMENTS,
        ("retool",),
    ),
    System(
        "ARTIST",
        "2505.01441",
        "`CodeProblems`, `TagToolFormat`, its composite reward, `WeightedParts`",
        "mathematical competitions, services with a database, its grades of the format",
        ("artist",),
        ("code_artist.py",),
        "own kind",
        ENVIRONMENTS,
        ("artist_composite",),
    ),
    System(
        "VerlTool",
        "2509.01055",
        "`VerlToolSession`, `VerlToolServer`, eight formats of calls, asynchronous episodes, "
        "exact tokens of earlier turns",
        "search and image tools in one server",
        (),
        ("code_verltool.py",),
        "own kind",
        ("ServedCodeProblems",),
    ),
    System(
        "MARS-SQL",
        "2511.01008",
        "`SqlQuestions` with its tags, format and reward, `SqlGrounding` and `PreparedEpisodes` "
        "(the grounding agent), `VerifierExamples` and `BestOfN` by `YesProbability` (the "
        "validator), `MajorityVote` of results",
        "its training of the grounding agent, which is not published, BIRD and Spider (their "
        "folders are read)",
        ("mars_sql",),
        ("sql_mars.py",),
        "own kind",
        ("SqlQuestions", "SqlGrounding"),
        ("mars_sql_turns",),
    ),
    System(
        "DataMind",
        "2509.25084",
        "`TableQuestions` with its tags, replayed code, SQL functions and reward; `Imitation` and "
        "`Complement` of its weight",
        "its 12,000 trajectories of 18 kinds of tasks, a language model as judge",
        ("datamind",),
        ("table_datamind.py",),
        "own kind",
        ("TableQuestions",),
        ("datamind_constant", "datamind_rl"),
    ),
)

"""Systems that think with images (docs/vision_systems.md)."""

from agentrl_jax.launch.benchmarks.systems.system import System

IMAGE_SYSTEMS = (
    System(
        "MGPO",
        "2507.05920",
        "`RegionQuestions` with its two turns and crops from the full resolution",
        "photographs (MME-RealWorld, V*)",
        ("mgpo",),
        ("vision_mgpo.py",),
        "own kind",
        ("RegionQuestions",),
        ("mgpo",),
    ),
    System(
        "ViGoRL",
        "2505.23678",
        "`SceneQuestions` with its points, zoom and rewards",
        "a large model that searches for demonstrations (the policy does here), photographs",
        ("vigorl",),
        ("vision_vigorl.py",),
        "own kind",
        ("SceneQuestions",),
        ("vigorl",),
    ),
    System(
        "CodeVision",
        "2512.03746",
        "`TransformedImages` with its reward, penalties and programs on images in the sandbox, "
        "`ToolNecessity`",
        "demonstrations of a large model, photographs and texts in them; the config has tools "
        "instead of programs",
        ("codevision",),
        ("vision_codevision.py",),
        "own kind",
        ("TransformedImages",),
        ("codevision_process", "codevision_penalties"),
    ),
    System(
        "FrameThinker",
        "2509.24304",
        "`VideoQuestions` with its actions, consistency gate and five rewards",
        "recorded videos (LongVideo-Reason), its demonstrations",
        ("framethinker",),
        ("vision_framethinker.py",),
        "own kind",
        ("VideoQuestions",),
        ("framethinker",),
    ),
    System(
        "VRAG-RL",
        "2505.22019",
        "`PageQuestions` with its actions and reward, `ndcg`",
        "real documents, a retriever of page images (BM25 over hidden words here), a language "
        "model as judge",
        ("vrag_rl",),
        ("vision_vrag.py",),
        "own kind",
        ("PageQuestions",),
        ("vrag_retrieval",),
    ),
    System(
        "MetaSpatial",
        "2503.18470",
        "`RoomLayouts` with its formats and physics, `SpanModulated` and `SpanFactors` (3D-SPO)",
        "marks of a language model on three-dimensional renderings (measurable terms here), its "
        "schedule of rewards",
        ("meta_spatial",),
        ("vision_metaspatial.py",),
        "own kind",
        ("RoomLayouts",),
        ("metaspatial_spo",),
    ),
)

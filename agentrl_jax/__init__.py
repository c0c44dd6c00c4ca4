"""Multi-turn reinforcement learning of language-model agents in JAX.

Importing this package imports neither JAX nor any part of it, so that environment workers start fast.
"""

import os

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it advises to install torch, which nothing here needs

__version__ = "0.1.0"

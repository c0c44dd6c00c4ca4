"""`base_model`: what the model that ships has learned. Generates a table of docs/base_model.md."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.corpus.corpus import held_out_exercises
from agentrl_jax.corpus.domains import DOMAINS
from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.language_model import DomainResult, LanguageModel
from agentrl_jax.launch.benchmarks.tables.markdown import table_header, table_row
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.models.hf.folder import resolve_folder
from agentrl_jax.models.hf.shipped import BASE_MODEL
from agentrl_jax.storage.files import write_json

HEADS = ("domain", "share", "tokens", "loss", "unigram", "bits per byte", "answers right")


@dataclass
class BaseModel:
    """Held-out loss and answers by domain; a domain's results are cached in a file."""

    model: str = option(BASE_MODEL, "A folder, or the name of a model that ships.")
    exercises: int = option(100, "Held-out exercises of each domain.", 1)
    folder: str = option("benchmarks/results/base_model", "The folder of the cached results.")
    page: str = option("docs/base_model.md", "The page with the table.")
    print_only: bool = option(False, "Measure nothing.")

    def prepare(self) -> None:
        """Uses this process's devices as they are."""

    def run(self) -> dict[str, Any]:
        """Measure the domains that are missing, update the page, print the table and report.

        Raises:
            UserError: a file holds the results of another model.
        """
        missing = [name for name in DOMAINS if self._load(name) is None]
        if missing and not self.print_only:
            self._measure(missing)
        table = self.table()
        doc_tables.replace_section(Path(self.page), "domains", table)
        print(table)
        results = {name: self._load(name) for name in DOMAINS}
        return {
            "bench": "base_model",
            "domains": {name: asdict(x) if x else None for name, x in results.items()},
        }

    def table(self) -> str:
        """A row for each domain with results."""
        rows = [
            table_row(*result.cells(name, DOMAINS[name].percent))
            for name in DOMAINS
            if (result := self._load(name)) is not None
        ]
        return "\n".join([*table_header(*HEADS), *rows])

    def _measure(self, names: list[str]) -> None:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        with LanguageModel(self.model) as model:
            for name in names:
                result = model.evaluate(held_out_exercises(name, self.exercises))
                write_json(self._path(name), {**self._identity, **asdict(result)})

    def _path(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.json"

    @property
    def _identity(self) -> dict[str, Any]:
        weights = resolve_folder(self.model) / "model.safetensors"
        digest = hashlib.blake2b(weights.read_bytes(), digest_size=8).hexdigest()
        return {"weights_digest": digest, "exercises": self.exercises}

    def _load(self, name: str) -> DomainResult | None:
        """The cached results; None: missing."""
        path = self._path(name)
        if not path.exists():
            return None
        cached = json.loads(path.read_text())
        identity = {field: cached.pop(field, None) for field in self._identity}
        if identity != self._identity:
            raise UserError(f"{path} is of another model: delete it to measure this one")
        return DomainResult(**cached)

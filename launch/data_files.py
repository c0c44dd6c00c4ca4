"""`DataFile`: checks files of demonstrations and preferences, and converts them.

What it needs of the package is imported where it runs: --help reads only its flags.
"""

from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import option


@dataclass
class DataFile:
    """A file, folder or dataset of demonstrations or preferences, or what a run wrote."""

    check: str = option(
        "", "Validate a file, folder or dataset of demonstrations or preferences, and count it."
    )
    export: str = option(
        "",
        "Convert --source into this file: .jsonl in OpenAI's form, .array_record, which is this "
        "package's own, or .parquet, one of the tables of a run's trajectories.",
    )
    source: str = option(
        "",
        "What --export reads: a file, folder or dataset of demonstrations or preferences, a run "
        "folder, or a trajectory log.",
    )
    pairs: bool = option(
        False, "Export pairs: every two trajectories of a group whose returns differ."
    )
    table: str = option("", "Export a .parquet file of episodes, turns or tokens.")
    successful_only: bool = option(False, "Export successful episodes alone.")
    tokenizer: str = option("", "A Hugging Face folder: --check counts tokens with it.")

    @property
    def is_named(self) -> bool:
        """Whether a flag asks for a check or a conversion."""
        return bool(self.check or self.export or self.source)

    def run(self) -> str:
        """Check or export, and return what to print.

        Raises:
            UserError: a record is wrong, or the flags contradict each other.
        """
        if self.check:
            from agentrl_jax.launch.data_check import check_file

            return check_file(Path(self.check), self.tokenizer)
        if not (self.source and self.export):
            raise UserError("a conversion needs --source=FILE_OR_RUN_FOLDER and --export=FILE")
        from agentrl_jax.launch import data_conversion

        out, source = Path(self.export), Path(self.source)
        if out.suffix == ".parquet" or self.table:
            return data_conversion.export_table(source, out, self.table)
        if out.suffix not in (".jsonl", ".array_record") or (self.pairs and out.suffix != ".jsonl"):
            raise UserError(
                f"--export={out}: name a .jsonl file, or for episodes an .array_record file"
            )
        if self.pairs and self.successful_only:
            raise UserError("--pairs compares successful episodes with others: leave one flag out")
        if self.pairs:
            return data_conversion.export_pairs(source, out)
        chats = (x for _, x in data_conversion.read_episodes(source))
        if self.successful_only:
            chats = (x for x in chats if x.trajectory.success)
        return data_conversion.export_episodes(chats, out)

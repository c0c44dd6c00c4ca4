"""Mutation tests: which small changes of losses, credit, packing and sharding do the fast tests of
these modules notice?

    python -m benchmarks.studies.mutation [--size=250] [--skip=0] [--seed=0] [--only=TEXT]

Runs a random sample that has each module in proportion; results are appended to a file, and a
mutant that has one there is not run again. Prints the survivors and a table. Exits with 1 where a
smaller share than `--at_least` is killed, or `--minutes` ended the runs before the last. Needs the
extra `mutation`.
"""

import argparse
import os
import sys
import time
import tomllib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.studies.mutation import imports, mutants, results, runner
from benchmarks.studies.mutation.mutants import Mutant

ROOT = imports.ROOT
TARGETS = Path(__file__).with_name("targets.toml")
LIMIT_S = 120.0  # of the processor, for the tests of one mutant


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.mutation")
    parser.add_argument("--size", type=int, default=250, help="how many mutants")
    parser.add_argument("--skip", type=int, default=0, help="how many of the order come before")
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--only", default="", help="only modules whose path has this text")
    parser.add_argument("--minutes", type=float, default=60.0, help="after these none is started")
    parser.add_argument("--at_least", type=float, default=0.9, help="share that must be killed")
    parser.add_argument("--again", action="store_true", help="run those again that survived")
    parser.add_argument("--print_only", action="store_true", help="run none")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutation.jsonl")
    return parser.parse_args()


def read_targets() -> dict[str, list[str]]:
    """The files of tests of each module, both from the root of the repository."""
    targets = tomllib.loads(TARGETS.read_text(encoding="utf-8"))
    return {module: [f"tests/{file}" for file in files] for module, files in targets.items()}


def make_sample(modules: Sequence[str], seed: int, skip: int, size: int) -> list[Mutant]:
    """The mutants of one stretch of the order."""
    source_of = {module: (ROOT / module).read_text(encoding="utf-8") for module in modules}
    sites_of = {module: mutants.sites(module, source) for module, source in source_of.items()}
    order = mutants.stratified_order(sites_of, seed)
    print(f"{len(order)} mutants of {len(modules)} modules", file=sys.stderr)
    return [mutants.make_mutant(site, source_of[site.module]) for site in order[skip : skip + size]]


def run_module(
    pending: Sequence[Mutant], files: Sequence[str], results_file: results.ResultsFile, end: float
) -> None:
    """Run the mutants of one module in a process that has imported what does not depend on it."""
    module = pending[0].site.module
    name = imports.module_name(module)
    paths = [ROOT / file for file in files]
    for independent in imports.independent_modules(name, paths):
        __import__(independent)
    source = (ROOT / module).read_text(encoding="utf-8")
    tests, text = " ".join(files), "".join(path.read_text(encoding="utf-8") for path in paths)
    durations = results_file.durations(tests, text)
    if durations is None:
        outcome = runner.test_source(name, source, paths, LIMIT_S, ROOT)
        if outcome.status != "survived":
            raise SystemExit(f"error: without a mutant {outcome.status} by {outcome.test}")
        results_file.add_passed(tests, text, outcome)
        durations = outcome.durations
    for mutant in pending:
        if time.monotonic() > end:
            return
        outcome = runner.test_source(name, mutant.source, paths, LIMIT_S, ROOT, durations)
        results_file.add(mutant, outcome)
        text = f"{outcome.status} {outcome.seconds:.1f} s {module}:{mutant.site.line}"
        print(text, mutant.after, outcome.test, sep="  ", file=sys.stderr, flush=True)


def run_in_process(*arguments: object) -> None:
    """`run_module` in a forked process. Raises SystemExit where it failed."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            run_module(*arguments)  # pyright: ignore
            code = 0
        except SystemExit as error:
            print(error, file=sys.stderr, flush=True)
        except Exception:
            sys.excepthook(*sys.exc_info())  # pyright: ignore
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(1)


def main() -> int:
    arguments = parse_arguments()
    # The environment of tests: devices, checks of shapes, options of JAX.
    sys.path.insert(0, str(ROOT / "tests"))
    __import__("conftest")
    end = time.monotonic() + 60 * arguments.minutes
    targets = {
        module: files for module, files in read_targets().items() if arguments.only in module
    }
    sample = make_sample(list(targets), arguments.seed, arguments.skip, arguments.size)
    results_file = results.ResultsFile(arguments.results)
    outcomes = results_file.outcomes()
    repeated = (
        {results.mutant_key(mutant) for mutant, _ in results.survivors(sample, results_file)}
        if arguments.again
        else set()
    )
    pending = [
        mutant
        for mutant in sorted(sample, key=lambda mutant: mutant.site.module)
        if results.mutant_key(mutant) not in outcomes or results.mutant_key(mutant) in repeated
    ]
    if not arguments.print_only:
        for module, group in groupby(pending, key=lambda mutant: mutant.site.module):
            if time.monotonic() < end:
                run_in_process(list(group), targets[module], results_file, end)
    for mutant, outcome in results.survivors(sample, results_file):
        site = mutant.site
        print(f"{outcome.status} {site.module}:{site.line} {site.operator}")
        print(f"    {mutant.before}\n    {mutant.after}")
    text, share = results.table(sample, results_file)
    print(text)
    known = results_file.outcomes()
    num_left = sum(results.mutant_key(mutant) not in known for mutant in sample)
    if num_left:
        print(f"{num_left} are left: run the command again")
    return int(bool(num_left) or share < arguments.at_least)


if __name__ == "__main__":
    sys.exit(main())

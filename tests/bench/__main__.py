"""Command line of the benches.

    python -m tests.bench [BENCH ...] [--size 512MB] [--files N] [--runs N] [--repeat 3] [--tiny]
        [--json FILE] [--markdown FILE] [--work DIR]
    python -m tests.bench compare BASE CHANGE [BENCH ...] [the same options]

BASE and CHANGE are commits or folders of checkouts.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench import table
from tests.bench.compare import checkout, compare, markdown
from tests.bench.contract import Result, Settings, benches, tiny_settings

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def main(arguments: Sequence[str]) -> None:
    """Runs what is asked for; the table goes to stdout, what is being done to stderr."""
    comparing = arguments[:1] == ["compare"]
    options = _parser(comparing).parse_args(arguments[1 if comparing else 0 :])
    settings = _settings(options)
    chosen = [benches()[name] for name in options.bench or benches()]
    if comparing:
        trees = [checkout(settings.work, name) for name in (options.base, options.change)]
        sys.stdout.write(f"{markdown(compare(settings, chosen, *trees))}\n")
        return
    results: list[Result] = []
    for bench in chosen:
        sys.stderr.write(f"{bench.name} ...\n")
        results += bench.run(settings)
    found = table.document(settings, results)
    if options.json:
        table.write_json(found, options.json)
    if options.markdown:
        page = options.markdown.read_text(encoding="utf-8")
        options.markdown.write_text(table.rendered(page, found), encoding="utf-8")
    sys.stdout.write(f"{table.markdown(found)}\n")


def _parser(comparing: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench", description=(__doc__ or "").partition("\n")[0]
    )
    if comparing:
        parser.add_argument("base", help="Commit or folder.")
        parser.add_argument("change", help="Commit or folder.")
    known = ", ".join(benches())
    parser.add_argument("bench", nargs="*", type=_bench, help=f"All by default: {known}.")
    parser.add_argument("--size", type=_bytes, default="512MB", help="Of a large input.")
    parser.add_argument("--files", type=int, default=10_000, help="In a tree of small files.")
    parser.add_argument("--runs", type=int, default=1_000, help="In the largest lake.")
    parser.add_argument("--repeat", type=int, default=3, help="Rounds.")
    parser.add_argument("--tiny", action="store_true", help="Shows that the benches run.")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "tracelake-bench"))
    parser.add_argument("--json", type=Path, help="Write every sample to this file.")
    parser.add_argument("--markdown", type=_page, help="Write the table into this page.")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    work = options.work.resolve()
    if options.tiny:
        return tiny_settings(work)
    return Settings(
        size_bytes=options.size,
        files=options.files,
        runs=options.runs,
        repeat=options.repeat,
        work=work,
    )


def _bench(name: str) -> str:
    if name not in benches():
        raise argparse.ArgumentTypeError(f"no bench {name!r}; one of {', '.join(benches())}")
    return name


def _page(name: str) -> Path:
    """A page that can take the table: what is wrong with it is said before anything is measured."""
    path = Path(name)
    try:
        table.check_page(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{name} cannot take the table: {error}") from error
    return path


def _bytes(text: str) -> int:
    """A size such as 512MB."""
    found = re.fullmatch(r"(\d+) ?([KMG]?)B?", text, re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; say 512MB or 10GB")
    return int(found[1]) * _UNITS[found[2].upper()]


if __name__ == "__main__":
    main(sys.argv[1:])

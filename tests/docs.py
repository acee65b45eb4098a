"""Generates what the documentation shows: every `$ tracelake ...` block, and docs/reference.md.

A fenced ```console block in README.md or docs/ holds commands and what they print on standard
output; a line that begins with `> ` continues a command. They run in order, page by page, in an
empty folder with data/sample beside them, or `corpus` for pages about real traces. Write them with
`make docs`; `tests/test_docs.py` fails when a page is not what its commands print.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

from tests import questions, scale
from tests.corpus import NO_CORPUS, corpus_folder
from tracelake.cli import app
from tracelake.formats import formats
from tracelake.formats.ledger import COMMON_FAULTS, COMMON_REJECTS
from tracelake.lake.run_records import records_table
from tracelake.models.catalog import catalog
from tracelake.schema.tables import reasons, skip_reasons, tables

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
CORPUS_PAGES = ("docs/real-traces.md",)
REFERENCE = "docs/reference.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
PAGES = tuple(
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.relative_to(ROOT).as_posix() not in CORPUS_PAGES and BLOCK.search(page.read_text())
)
_COMMAND = re.compile(r"^\$ .*(?:\n> .*)*", re.MULTILINE)


Run = Callable[[list[str], Path], tuple[int, str, str]]
"""Runs `tracelake` with arguments in a folder; its exit code, standard output and error."""


def run_command(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Runs a `tracelake` command in a process of its own."""
    executable = Path(sys.executable).with_name("tracelake")
    environment = {**os.environ, **ENVIRONMENT}
    environment.pop("TRACELAKE_LAKE", None)
    done = subprocess.run(
        [executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def rendered(page: str, folder: Path, run: Run = run_command) -> str:
    """The page with the output of its commands as it is now."""

    def run_block(match: re.Match[str]) -> str:
        shown = ""
        for command in _COMMAND.findall(match[1]):
            line = "\n".join(part[2:] for part in command.splitlines())
            program, *arguments = shlex.split(line)
            assert program == "tracelake", f"only tracelake runs in a console block: {line}"
            code, out, err = run(arguments, folder)
            assert code == 0, f"{line}\n{err}"
            shown += f"{command}\n"
            shown += "".join(text.rstrip() + "\n" for text in out.splitlines())
        return f"```console\n{shown}```"

    return BLOCK.sub(run_block, (ROOT / page).read_text(encoding="utf-8"))


def sample_folder(parent: Path) -> Path:
    """An empty folder with data/sample in it."""
    (parent / "data").mkdir()
    (parent / "data" / "sample").symlink_to(ROOT / "data" / "sample")
    return parent


def real_folder(parent: Path, corpus: Path) -> Path:
    """An empty folder with the real traces in it, as `corpus`."""
    (parent / "corpus").symlink_to(corpus.resolve())
    return parent


def reference() -> str:
    """docs/reference.md: tables, models, columns, reasons, formats."""
    out = [
        "# Reference",
        "",
        "Generated from `schemas/`, `sql/` and the formats by `make docs`.",
        "",
        "## Base tables",
    ]
    for table in tables().values():
        out += [
            "",
            f"### {table.name}",
            "",
            table.doc,
            "",
            "| column | type | unit | |",
            "|-|-|-|-|",
        ]
        for c in table.columns:
            kind = f"{c.type} NOT NULL" if c.name in table.required else c.type
            out.append(_row(c.name, kind, c.unit, c.doc))
    out += ["", "## Models"]
    models = catalog()
    for model in (models.models[name] for name in models.public):
        grain = ", ".join(model.grain)
        scope = "all runs together" if model.fleet else "per run"
        out += ["", f"### {model.name}", "", model.doc, "", f"One row per {grain}; {scope}."]
        out += ["", "| column | type | unit | |", "|-|-|-|-|"]
        out += [_row(c.name, c.type, c.unit, c.doc) for c in models.columns[model.name]]
    record = records_table()
    out += ["", "## The record of commands", "", f"### {record.name}", "", record.doc]
    out += ["", "| column | type | unit | |", "|-|-|-|-|"]
    out += [_row(c.name, c.type, c.unit, c.doc) for c in record.columns]
    out += ["", "## Reasons", "", "Why a figure is NULL.", "", "| reason | |", "|-|-|"]
    out += [_row(name, doc) for name, doc in reasons().items()]
    out += ["", "Why an input is in `skipped`.", "", "| reason | |", "|-|-|"]
    out += [_row(name, reason.doc) for name, reason in sorted(skip_reasons().items())]
    out += ["", "## Faults and rejects of every format", "", "| name | severity | |", "|-|-|-|"]
    out += [
        _row(f.name, str(f.severity), f.doc) for f in sorted(COMMON_FAULTS, key=lambda f: f.name)
    ]
    out += [_row(name, "reject", doc) for name, doc in sorted(COMMON_REJECTS.items())]
    out += _commands()
    for fmt in formats().values():
        out += ["", f"## Format {fmt.name}", "", fmt.doc, "", "| name | kind | |", "|-|-|-|"]
        out += [_row(name, "reject", doc) for name, doc in sorted(fmt.rejects.items())]
        out += [_row(name, "irrelevant", doc) for name, doc in sorted(fmt.irrelevant.items())]
        out += [_row(f.name, f"fault, {f.severity}", f.doc) for f in fmt.faults]
    return "\n".join(out) + "\n"


def _commands() -> list[str]:
    """Every command with its arguments and options, as `--help` has them."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    out = ["", "## Commands"]
    for name, command in sorted(group.commands.items()):
        out += ["", f"### tracelake {name}", "", *(command.help or "").splitlines()]
        out += ["", "| option | default | |", "|-|-|-|"]
        for option in command.params:
            words = " ".join([*option.opts, option.metavar or ""]).strip()
            if isinstance(option, typer.core.TyperArgument):
                words = option.metavar or str(option.name).upper()
            given = option.default
            shown = "required" if option.required else "" if given in {None, False, ""} else given
            out.append(_row(f"`{words}`", str(shown), getattr(option, "help", "")))
    return out


def _row(*cells: str | None) -> str:
    return "| " + " | ".join((cell or "").replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Writes the pages."""
    (ROOT / REFERENCE).write_text(reference(), encoding="utf-8")
    questions.write()
    scale.write()
    for page in PAGES:
        _write(page, sample_folder)
    corpus = corpus_folder()
    if corpus is None:
        sys.stderr.write(f"{', '.join(CORPUS_PAGES)}: left as they are, {NO_CORPUS}\n")
        return
    for page in CORPUS_PAGES:
        _write(page, partial(real_folder, corpus=corpus))


def _write(page: str, prepare: Callable[[Path], Path]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        text = rendered(page, prepare(Path(parent)))
    (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

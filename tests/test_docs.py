"""Documentation is what the program prints, and every command is documented."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from tests import docs, scale
from tests.conftest import Command, Result
from tracelake.cli import app
from tracelake.lake.store import Lake

FIGURE = re.compile(r"(?<![\w.])(?:\d+\.\d+|\d{3,})(?!\w|\.\d)")


@pytest.fixture
def run(tracelake: Command, monkeypatch: pytest.MonkeyPatch, sample_lake: Lake) -> docs.Run:
    """Runs the commands of pages in this process; an ingest of the sample finds all there."""
    for name, value in docs.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def run_here(arguments: list[str], folder: Path) -> Result:
        monkeypatch.chdir(folder)
        if arguments[:4] == ["ingest", "data/sample", "--lake", "lake"]:
            Path("lake").symlink_to(sample_lake.root)
        return tracelake(*arguments)

    return run_here


@pytest.mark.parametrize("page", docs.PAGES)
def test_pages_show_what_their_commands_print(page: str, tmp_path: Path, run: docs.Run) -> None:
    shown = (docs.ROOT / page).read_text(encoding="utf-8")
    assert shown == docs.rendered(page, docs.sample_folder(tmp_path), run), "run: make docs"


def test_the_arithmetic_is_of_what_was_measured() -> None:
    shown = scale.PAGE.read_text(encoding="utf-8")
    assert shown == scale.rendered(shown), "run: make docs"
    assert "core-hours" in shown


@pytest.mark.parametrize("page", docs.CORPUS_PAGES)
def test_pages_about_real_traces_show_what_their_commands_print(
    page: str, corpus: Path, tmp_path: Path, run: docs.Run
) -> None:
    shown = (docs.ROOT / page).read_text(encoding="utf-8")
    assert shown == docs.rendered(page, docs.real_folder(tmp_path, corpus), run), "run: make docs"


@pytest.mark.parametrize("page", docs.CORPUS_PAGES)
def test_figures_in_the_prose_stand_in_a_table_above(page: str) -> None:
    """Prose that quotes a figure quotes it as printed, so it cannot outlive what it describes."""
    prose_and_blocks = docs.BLOCK.split((docs.ROOT / page).read_text(encoding="utf-8"))
    assert len(prose_and_blocks) > 1
    printed: set[str] = set()
    for place, text in enumerate(prose_and_blocks):
        figures = set(FIGURE.findall(text))
        if place % 2:
            printed |= figures
        else:
            assert figures <= printed, f"not printed above: {sorted(figures - printed)}"


def test_the_reference_is_generated() -> None:
    shown = (docs.ROOT / docs.REFERENCE).read_text(encoding="utf-8")
    assert shown == docs.reference(), "run: make docs"


def commands() -> dict[str, object]:
    group = typer.main.get_command(app)
    return dict(group.commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_has_help_docs_and_a_test(name: str) -> None:
    command = commands()[name]
    assert command.help  # type: ignore[attr-defined]
    for parameter in command.params:  # type: ignore[attr-defined]
        assert getattr(parameter, "help", None), f"{name} {parameter.name} has no help"
    program, named, *given = shlex.split(command.epilog.removeprefix("Example: "))  # type: ignore[attr-defined]
    assert (program, named) == ("tracelake", name)
    command.make_context(name, given)  # type: ignore[attr-defined]
    hidden = command.hidden  # type: ignore[attr-defined]
    assert hidden or f"tracelake {name}" in (docs.ROOT / "README.md").read_text(encoding="utf-8")
    tests = (docs.ROOT / "tests").rglob("test_*.py")
    assert any(f'"{name}"' in test.read_text(encoding="utf-8") for test in tests)

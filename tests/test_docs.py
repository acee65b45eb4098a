"""Documentation is what the program prints, and every command is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer.main

from pipeline.cli import app
from tests import docs


@pytest.mark.parametrize("page", docs.PAGES)
def test_pages_show_what_their_commands_print(page: str, tmp_path: Path) -> None:
    shown = (docs.ROOT / page).read_text(encoding="utf-8")
    assert shown == docs.rendered(page, docs.sample_folder(tmp_path)), "run: make docs"


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
    assert f"tracelake {name}" in (docs.ROOT / "README.md").read_text(encoding="utf-8")
    tests = (docs.ROOT / "tests" / "test_cli.py").read_text(encoding="utf-8")
    assert f'"{name}"' in tests

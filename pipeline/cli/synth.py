"""Define the `synth` command: its options are the fields of a generated archive's spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tracelake.base.errors import UsageError
from tracelake.base.text import counted
from tracelake.cli.app import command
from tracelake.cli.options import grouped, option
from tracelake.synth.spec import Spec, sample_spec


def _options() -> Iterator[tuple[str, Any, Any]]:
    """Yield an option per field of `Spec`: its name, its type and the field of a group."""
    hints = get_type_hints(Spec)
    for field in fields(Spec):
        name, meaning = field.name, field.metadata["help"]
        if (default := field.default) is not None:
            meaning += f" Default: {', '.join(default) if isinstance(default, tuple) else default}."
        flag = f"--{name}/--no-{name}".replace("_", "-") if hints[name] is bool else None
        kind = list[str] if name == "formats" else hints[name]
        yield name, kind | None, option(None, meaning, flag=flag)


_SpecOptions = make_dataclass("_SpecOptions", _options())


@command(epilog="Example: tracelake synth archive --sample")
@grouped
def synth(
    directory: Annotated[Path, typer.Argument(help="Directory to write, new or empty.")],
    sample: Annotated[
        bool, typer.Option("--sample", help="Write the archive of data/sample.")
    ] = False,
    ranks: Annotated[
        int | None, typer.Option(help="World size: sets dp to ranks / (tp * pp).")
    ] = None,
    *,
    given: _SpecOptions,  # type: ignore[valid-type]
) -> None:
    """Write an archive with known answers, in three formats, and the answers with it."""
    from tracelake.synth.archive import write_archive

    chosen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(given).items()
        if value is not None
    }
    if sample and (chosen or ranks is not None):
        raise UsageError(
            "--sample excludes other options", hint="leave --sample out to choose what is written"
        )
    if chosen.get("busbw_gbps") == 0:
        chosen["busbw_gbps"] = None
    if ranks is not None:
        chosen["dp"] = _replicas(ranks, chosen.get("tp", Spec.tp) * chosen.get("pp", Spec.pp))
    answers = write_archive(directory, sample_spec() if sample else Spec(**chosen))
    typer.echo(f"{counted(len(answers['runs']), 'run')} in {directory}, answers in answers.json")


def _replicas(ranks: int, model_parallel: int) -> int:
    if model_parallel < 1:
        return 1  # the sizes are refused with the rest of the spec
    if ranks % model_parallel:
        raise UsageError(
            f"--ranks {ranks} is not a multiple of tp * pp = {model_parallel}",
            hint="set --tp and --pp",
        )
    return ranks // model_parallel

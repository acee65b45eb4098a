"""Define the options of an ingest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tracelake.formats import Format
from tracelake.ingest.hosts import Hosts
from tracelake.inputs.expand import DEFAULT_EXPANSION, DecompressionLimit
from tracelake.schema.tables import SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of an ingest.

    Attributes:
        input_format: Forces a format; None lets the content decide.
        run_pattern: Regular expression on the relative path with named groups: run, rank, host,
            device and topology keys.
        given: Topology from `--set`.
        run_gap_seconds: A stamp later than this after the one before starts a new run.
        replace: Lets a run with fewer ranks or lines replace a run with more.
        verify: Reads unchanged files again.
        hosts: Host of each rank, from `--hosts`. Stored per input, not with `shaping`: a
            changed line affects only the runs whose hosts it gives.
        max_expand: How far a compressed input may expand.
        fabric: Name of the network that runs and bandwidth tests ran on.
    """

    input_format: str | None = None
    run_pattern: str | None = None
    given: Mapping[str, int] = field(default_factory=dict)
    run_gap_seconds: float = 60.0
    replace: bool = False
    verify: bool = False
    hosts: Hosts | None = None
    max_expand: DecompressionLimit = DEFAULT_EXPANSION
    fabric: str | None = None

    def shaping(self, fmt: Format) -> dict[str, Any]:
        """Return the options that change rows, as stored with a run."""
        return {
            "format": fmt.name,
            "parser": fmt.version,
            "schema": SCHEMA_VERSION,
            "forced": self.input_format is not None,
            "run_pattern": self.run_pattern,
            "given": dict(sorted(self.given.items())),
            "run_gap_seconds": self.run_gap_seconds,
            **({"fabric": self.fabric} if self.fabric else {}),
        }

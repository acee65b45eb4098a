"""What a capable user would write instead: one module per large format, each ending in `PEERS`.

Each tool has two: `python_plain`, `polars_plain` and `duckdb_plain` are what one writes first,
`python`, `polars` and `duckdb` what is left to gain by one who knows the tool. The two differ in
expressions and in how lines are cut; typing and writing are the same code.

A peer reads one file and writes the relations of `tests.bench.inputs` as zstd Parquet, a folder
each. It needs only what is printed on the lines: no steps, no micro-batches, no account of lines
that it does not understand, no hash of what it read. That favours the peers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from tracelake.base.errors import ContractError

Peer = Callable[[Path, Path], None]


def peers(name: str) -> Mapping[str, Peer]:
    """The peers of a format by name.

    Raises:
        ContractError: The format has none.
    """
    found: Mapping[str, Peer] = _module_of(name).PEERS
    return found


def narrow_peers(name: str) -> Mapping[str, Peer]:
    """Peers that can read the generated file, but not every file of the format."""
    found: Mapping[str, Peer] = getattr(_module_of(name), "NARROW", {})
    return found


def _module_of(name: str) -> ModuleType:
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        raise ContractError(
            f"no bench peers for format {name}",
            hint=f"add tests/bench/peers/{name}.py that ends in PEERS = {{name: function}}",
        )
    return importlib.import_module(f"{__name__}.{name}")

"""Define the `mcp` command."""

from __future__ import annotations

from tracelake.base.errors import UsageError
from tracelake.cli.app import app
from tracelake.cli.options import LakeName
from tracelake.cli.steps import open_lake


@app.command("mcp", epilog="Example: tracelake mcp --lake lake")
def mcp(lake: LakeName) -> None:
    """Answer a language model's questions about the lake (Model Context Protocol, stdio)."""
    opened = open_lake(lake)
    try:
        from tracelake.output.mcp_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UsageError(
            "mcp needs a library that is not installed", hint="pip install 'tracelake[mcp]'"
        ) from error
    serve(opened)

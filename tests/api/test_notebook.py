"""The notebook of the documentation answers on the sample, and shows what it answered.

`python -m tests.api.test_notebook` runs it and writes its outputs into the file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.conftest import ROOT, SAMPLE
from tests.lakes import ingest_and_build
from tracelake.lake.store import Lake

NOTEBOOK = ROOT / "docs" / "tour.ipynb"


def executed(folder: Path) -> nbformat.NotebookNode:
    """The notebook after its cells have run on the lake beside it; one that fails is an error."""
    notebook = nbformat.read(NOTEBOOK, 4)
    environment = {**os.environ, "TRACELAKE_LAKE": "lake"}
    client = NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(folder)}}, record_timing=False
    )
    client.execute(env=environment)
    return notebook


def texts(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """What cells of code show as text; a picture is only named."""
    return [
        [
            output.get("text")
            or ("picture" if "image/png" in output.data else output.data["text/plain"])
            for output in cell.outputs
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_answers_on_the_sample(tmp_path: Path, sample_lake: Lake) -> None:
    (tmp_path / "lake").symlink_to(sample_lake.root)
    kept = texts(nbformat.read(NOTEBOOK, 4))
    found = texts(executed(tmp_path))
    assert all(found)
    # The first names the place of the lake.
    assert found[1:] == kept[1:], f"write it anew: python -m {__name__}"
    assert sum(shown == ["picture"] for shown in found) == 2
    assert "9a471160" in found[1][0]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        ingest_and_build(SAMPLE, Path(temporary, "lake"))
        done = executed(Path(temporary))
        nbformat.write(done, NOTEBOOK)

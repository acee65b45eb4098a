"""An installed wheel is whole: it runs the main job without the checkout.

Only compiled code is shared: it is that of exactly the same sources, or it is not used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from pipeline.base.disk_cache import places
from tests.conftest import ROOT


def test_the_main_job_runs_from_a_wheel(tmp_path: Path, sample: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = "import pipeline, sys; print(pipeline.__file__); from pipeline.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", sample, "--lake", "lake"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(site),
            "COLUMNS": "200",
            "NUMBA_CACHE_DIR": str(places()[0]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == str(site / "pipeline" / "__init__.py")
    assert (tmp_path / "lake" / "report.html").stat().st_size > 1000

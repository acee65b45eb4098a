"""An installed wheel is whole: it runs the main job without the checkout.

Only compiled code is shared: it is that of exactly the same sources, or it is not used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import duckdb

from tests.conftest import ROOT
from tracelake.base.disk_cache import places


def test_the_main_job_runs_from_a_wheel(tmp_path: Path, sample: Path) -> None:
    """Also where the user has a package called `pipeline`, which stays theirs."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert {path.name.split("-")[0] for path in site.iterdir()} == {"tracelake"}
    assert (site / "tracelake" / "py.typed").is_file()
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").write_text("MINE = True\n")
    code = """
import pipeline, tracelake
print(tracelake.__file__, pipeline.MINE, flush=True)
from tracelake.cli import main
main()
"""
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
    assert done.stdout.splitlines()[0] == f"{site / 'tracelake' / '__init__.py'} True"
    assert (tmp_path / "lake" / "report.html").stat().st_size > 1000


def test_the_command_is_blind_to_a_package_called_pipeline(tmp_path: Path) -> None:
    """The command of this checkout, which is installed by its path."""
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("tracelake"), "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tracelake ")
    assert f"\nduckdb {duckdb.__version__}\n" in done.stdout

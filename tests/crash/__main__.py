"""Command line: `python -m tests.crash --kills 300 --signals 50 --refusals 100 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.crash.campaign import Campaign
from tests.crash.story import FORMATS

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    for kind, count in (("kills", 300), ("signals", 50), ("refusals", 100), ("seed", 1)):
        parser.add_argument(f"--{kind}", type=int, default=count)
    parser.add_argument("--formats", nargs="+", default=FORMATS, help="of what is read")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tracelake-crash-") as folder:
        campaign = Campaign(Path(folder), asked.formats, asked.seed, sys.stdout)
        campaign.kill(asked.kills)
        campaign.stop(asked.signals)
        campaign.refuse(asked.refusals)
        print(campaign.told())  # noqa: T201
        sys.exit(bool(campaign.wrong))

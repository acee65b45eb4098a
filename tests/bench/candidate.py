"""One peer in a process of its own: `python -m tests.bench.candidate FORMAT PEER SOURCE TARGET`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.peers import narrow_peers, peers

if __name__ == "__main__":
    name, peer, source, target = sys.argv[1:]
    {**narrow_peers(name), **peers(name)}[peer](Path(source), Path(target))

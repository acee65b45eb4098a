"""The campaign: inputs that take a new branch of a kernel are kept and mutated further.

Every parser runs on every input, whole and in chunks, with its kernels checking their bounds and
counting the branches they take. Prints what fails with the seed that makes it again, and figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from random import Random

_CHECKED = {"NUMBA_BOUNDSCHECK": "1"}
_TOLD_SECONDS = 30


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("count", type=int, help="inputs per format")
    parser.add_argument("--format", dest="names", action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if "NUMBA_BOUNDSCHECK" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:  # other code than that of the product
            command = [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]]
            changed = {**os.environ, **_CHECKED, "NUMBA_CACHE_DIR": folder}
            return subprocess.run(command, env=changed, check=False).returncode

    from tests.fuzz import compiled

    compiled.check_bounds()
    compiled.count_branches()

    from tests.parsing import large_formats

    failed = 0
    for name in given.names or large_formats():
        failed += _campaign(name, given.count, given.seed)
    return 1 if failed else 0


def _campaign(name: str, count: int, seed: int) -> int:
    """Feeds mutated inputs to a parser; how many broke it."""
    from tests.fuzz.compiled import hits
    from tests.fuzz.invariants import examine
    from tests.fuzz.mutate import mutate
    from tests.fuzz.seeds import every_seed, seeds

    corpus = seeds(name)
    pool = [text for _, text in every_seed()]
    seen: set[tuple[int, int]] = set()
    failures: Counter[str] = Counter()
    begun = told = time.monotonic()
    for number in range(-len(corpus), count):
        random = Random(f"{seed}/{name}/{number}")
        data = corpus[number] if number < 0 else mutate(random, random.choice(corpus), pool)
        hits().fill(0)
        try:
            examine(name, data, random)
        except Exception as error:  # noqa: BLE001 -- whatever a parser does is to be told
            where = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {where.filename}:{where.lineno}"
            failures[kind] += 1
            if failures[kind] == 1:
                saved = os.path.abspath(f"fuzz-{name}-{number}.bin")
                with open(saved, "wb") as file:
                    file.write(data)
                print(f"{name} {number}: {error!r:.300} {kind}; {saved}", flush=True)  # noqa: T201
        found = {(site, int(n).bit_length()) for site, n in enumerate(hits().tolist()) if n}
        if not found <= seen:
            seen |= found
            if number >= 0:
                corpus.append(data)
        if time.monotonic() - told > _TOLD_SECONDS or number == count - 1:
            told = time.monotonic()
            branches = len({site for site, _ in seen})
            print(  # noqa: T201
                f"{name}: {number + 1:,} inputs in {told - begun:,.0f} s, {branches} branches,"
                f" {len(corpus):,} inputs kept, {sum(failures.values())} failures",
                flush=True,
            )
    return sum(failures.values())


if __name__ == "__main__":
    sys.exit(_main())

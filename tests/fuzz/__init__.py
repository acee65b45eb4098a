"""Hostile bytes for the parsers, and what must hold of whatever they make of them.

A small, seeded part runs with the tests; the campaigns are run by hand::

    python -m tests.fuzz COUNT              # guided by coverage, bounds checked
    python -m tests.fuzz.growth             # work grows as the input does
    python -m tests.fuzz.jobs COUNT         # whole files through the whole job
    python -m tests.fuzz.options COUNT      # generated command lines
"""

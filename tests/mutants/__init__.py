"""Small wrong changes of the product, to see whether its tests find them.

The campaign is run by hand::

    python -m tests.mutants ROOM --count 25 --seed 1
"""

"""Offer what the commands do to Python programs: `tracelake.open` and `tracelake.run`."""

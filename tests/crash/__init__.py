"""Processes that are killed, stopped or refused at every effect on the file system.

`python -m tests.crash` runs as many as asked for; tests/lake/test_crash.py a few of each kind.
"""

"""Replay steps with other lengths of operations: the kernel `replay` of models.

A step is a graph. A node starts when all nodes before it have ended. A node of a group ends its
length after the last member of its groups has started; another node ends its length after its own
start. Times are int64 nanoseconds.
"""

from tracelake.models.replay.kernel import INPUT, OUTPUT, replay, steps_of
from tracelake.models.replay.steps import Runs, Steps

__all__ = ["INPUT", "OUTPUT", "Runs", "Steps", "replay", "steps_of"]

"""Runs one command and says what it took: `python -I -S launch.py REPORT OUTPUT COMMAND...`.

A process of its own, and a small one: the kernel counts the memory of the process that forks as the
first memory of its child.
"""

import json
import os
import sys
import time


def main(report: str, output: str, command: list[str]) -> None:
    """Writes wall, user and system seconds, peak resident bytes and the exit code as JSON.

    User and system time are those of the command and of its children that have ended; peak memory
    is that of the largest of these processes.
    """
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.execvp(command[0], command)
    _, status, usage = os.wait4(child, 0)
    wall = time.perf_counter() - start
    said = {
        "wall_s": wall,
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
        "exit_code": os.waitstatus_to_exitcode(status),
    }
    with open(report, "w", encoding="utf-8") as file:
        json.dump(said, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

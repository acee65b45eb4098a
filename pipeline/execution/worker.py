"""Do the jobs that the command of this process sends, until it has ended."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from multiprocessing.connection import Connection

from tracelake.execution.jobs import Done, Order, do
from tracelake.kernels.compiled import on_message


def main(connection: Connection[Done | BaseException | str, Order]) -> None:
    """Answer each order with messages, then with the result or the error of its job."""
    with contextlib.suppress(EOFError, OSError), on_message(connection.send):
        while True:
            order = connection.recv()
            try:
                answer: Done | BaseException = do(order)
            except Exception as error:  # noqa: BLE001 - raised where the job was sent
                error.add_note(traceback.format_exc())
                answer = error
            connection.send(answer)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # and remove what is unfinished
    main(Connection(int(sys.argv[1])))

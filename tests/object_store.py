"""A server of the S3 protocol on loopback, moto's, that can be slow, refuse, and count.

    python -m tests.object_store PORT

Requests to `/_/` are for the server itself: `GET /_/count` gives the requests since the last time
by method, `PUT /_/faults` takes JSON: `delay` in seconds per request, `refuse` n for a 503 on
every n-th, `lose` n for a 503 after every n-th PUT, which is done, `deny` for a 403 on every object
whose name ends so, `elsewhere` for the answer of a store whose bucket is in another region.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

_BUSY = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"""
_DENIED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"""
_ELSEWHERE = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>PermanentRedirect</Code><Message>Use another endpoint.</Message></Error>"""
_Start = Callable[[str, list[tuple[str, str]]], object]


class _Front:
    """Stands before moto's application."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._delay = 0.0
        self._refuse = 0
        self._lose = 0
        self._deny = ""
        self._elsewhere = False
        self._numbers = count(1)

    def __call__(self, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith("/_/"):
            return self._own(path, environ, start)
        listing = method == "GET" and "list-type" in environ.get("QUERY_STRING", "")
        with self._lock:
            self._counts["LIST" if listing else method] += 1
            number = next(self._numbers)
        time.sleep(self._delay)
        if self._refuse and number % self._refuse == 0:
            with self._lock:
                self._counts["503"] += 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("503 Slow Down", [("Content-Type", "application/xml")])
            return [_BUSY]
        if self._deny and path.endswith(self._deny):
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"" if method == "HEAD" else _DENIED]
        if self._elsewhere:  # without a Location, as Amazon's
            start("301 Moved Permanently", [("Content-Type", "application/xml")])
            return [b"" if method == "HEAD" else _ELSEWHERE]
        if self._lose and method == "PUT" and self._counts["PUT"] % self._lose == 0:
            list(self._application(environ, lambda *_: None))
            start("503 Slow Down", [("Content-Type", "application/xml")])
            return [_BUSY]
        answer: Iterable[bytes] = self._application(environ, start)
        return answer

    def _own(self, path: str, environ: dict[str, Any], start: _Start) -> Iterable[bytes]:
        told: Any = None
        with self._lock:
            if path == "/_/faults":
                body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                faults = json.loads(body)
                self._delay, self._refuse = faults.get("delay", 0.0), faults.get("refuse", 0)
                self._lose, self._deny = faults.get("lose", 0), faults.get("deny", "")
                self._elsewhere = faults.get("elsewhere", False)
            else:
                told, self._counts = dict(self._counts), Counter()
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(told).encode()]


@dataclass(frozen=True)
class ObjectStore:
    """A server that runs.

    Attributes:
        environment: What lets the usual clients find it.
    """

    endpoint: str
    environment: dict[str, str]

    def count(self) -> dict[str, int]:
        """Requests since the last call: by method, LIST and 503."""
        with urllib.request.urlopen(f"{self.endpoint}/_/count") as answer:
            counted: dict[str, int] = json.loads(answer.read())
        return counted

    def faults(self, **faults: float | str) -> None:
        """Makes it slow (`delay`, seconds), refuse requests or objects, lose answers, or move."""
        body = json.dumps(faults).encode()
        request = urllib.request.Request(f"{self.endpoint}/_/faults", body, method="PUT")
        urllib.request.urlopen(request).close()

    def make_bucket(self, name: str) -> None:
        """A bucket that is there and empty."""
        self.put(name)

    def put(self, name: str) -> None:
        """An empty object of any name, which has its bucket."""
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request).close()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Starts a server in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.object_store", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the server did not start"
            endpoint = f"http://127.0.0.1:{port}"
            yield ObjectStore(
                endpoint,
                {
                    "AWS_ACCESS_KEY_ID": "test",
                    "AWS_SECRET_ACCESS_KEY": "test",
                    "AWS_REGION": "us-east-1",
                    "AWS_ENDPOINT_URL": endpoint,
                    "AWS_EC2_METADATA_DISABLED": "true",
                },
            )
        finally:
            server.kill()


def _serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *args: object) -> None:
            """Says nothing."""

    os.environ.setdefault("MOTO_S3_DEFAULT_MAX_KEYS", "1000")
    application = _Front(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, application, threaded=True, request_handler=Handler)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))

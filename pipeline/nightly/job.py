"""Run a job from start to end: lock, backlog, report, gates, summary, hook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb

from tracelake import __version__
from tracelake.base.console import Console
from tracelake.base.errors import CheckFailedError, TracelakeError, UsageError, exit_code_of
from tracelake.base.files import put_output
from tracelake.formats.ledger import EXPANDED_TOO_FAR
from tracelake.ingest.fence import parsers_failed
from tracelake.lake.home import full_name
from tracelake.lake.store import Lake
from tracelake.models.failures import Failure
from tracelake.nightly.backlog import Backlog, Duty
from tracelake.nightly.gates import (
    Gate,
    bad_lines,
    cut_short,
    failed_gates,
    failures,
    left_out,
    lost_data,
    too_many_bad_lines,
)
from tracelake.nightly.lock import alone
from tracelake.nightly.post_command import PostCommand
from tracelake.nightly.series import Series
from tracelake.nightly.summary import Account, Verdicts, read_incidents, read_page
from tracelake.output.html.page import ReportResult
from tracelake.output.prometheus import Gauge, job_gauges, lake_gauges, openmetrics, report_gauges
from tracelake.warehouse.warehouse import ask

_FOLDER = "_run"
_LATE = """
SELECT run_id FROM runs
WHERE run_id IN (SELECT unnest($1::VARCHAR[])) AND (run_date IS NULL OR run_date < $2)
ORDER BY run_date DESC NULLS LAST, run_id
"""


@dataclass(frozen=True, slots=True)
class Request:
    """The settings of a job other than its work.

    Attributes:
        started: Start time with a zone; `page` and `summary` are dated by it.
        since: The report covers runs dated at most this long before the start, and runs that
            arrived since the last such report; None covers everything.
        summary: File of the summary, if any.
        metrics: File of metrics for Prometheus, if any.
        report_url: Where people find the report, for messages.
        show: Prints the summary, if requested.
        keep: How many reports and summaries to keep of each series; None for all.
        wait: How long to wait for another job on the lake.
    """

    inputs: Sequence[str]
    started: datetime
    page: Series
    since: timedelta | None
    summary: Series | None
    show: Callable[[str], object] | None
    keep: int | None
    hook: PostCommand | None
    wait: timedelta
    metrics: Path | None = None
    report_url: str | None = None


class Job:
    """A job, as a context manager: its summary is written whatever happens inside.

    Inside, call `begin`, then `add_runs`, `late`, `add_page` and `judge` as the work goes on.
    """

    def __init__(self, lake: str, request: Request, console: Console) -> None:
        self.account = Account(full_name(lake), request.inputs, request.started)
        self._request = request
        self._page = request.page.path.absolute()
        self._day = request.started.date().isoformat()
        self._console = console
        self._until_end = ExitStack()
        self.account.report_url = request.report_url
        self._verdicts: list[TracelakeError] = []
        self._gauges: list[Gauge] = []
        self._begun = False
        self._lake: Lake
        self._gates: Sequence[Gate]
        self._backlog: Backlog

    def __enter__(self) -> Self:
        return self

    def begin(self, lake: Lake, gates: Sequence[Gate]) -> None:
        """Wait until no other job works on the lake, and read the backlog of earlier ones.

        Raises:
            LakeError: Another job takes too long.
        """
        self._lake, self._gates, self._begun = lake, gates, True
        duties = [
            Duty.LINES,
            *([Duty.GATES] if gates else []),
            *([] if self._request.since is None else [Duty.PAGE]),
        ]
        folder = lake.root / _FOLDER
        warn = self._console.warn
        self._until_end.enter_context(alone(folder / "lock", self._request.wait, warn))
        self._backlog = Backlog.open(lake, f"{_FOLDER}/owed.json", duties, warn)

    def add_runs(self, failed: Sequence[Failure]) -> None:
        """Add the runs of the warehouse, which has been built.

        Args:
            failed: Those that a model fails on.
        """
        self.account.model_failures = failed
        self.account.warehouse = f"{self._lake.name}/{self._lake.warehouse.name}"
        self._backlog.arrive()

    def late(self) -> Sequence[str]:
        """Return runs that the report must cover although they are not dated within `since`."""
        if self._request.since is None:
            return ()
        after = self._request.started.replace(tzinfo=None) - self._request.since
        given = [list(self._backlog.for_page(self._page, self._day)), after]
        found = ask(self._lake, "the late runs", lambda con: con.execute(_LATE, given).fetchall())
        self.account.late = [run_id for (run_id,) in found]
        return self.account.late

    def add_page(self, written: ReportResult) -> None:
        """Record that the report is in place: update the backlog and `latest`, remove old ones."""
        request, account = self._request, self.account
        account.report = written.path
        request.page.link_latest()
        account.latest = request.page.latest
        if request.since is not None:
            self._backlog.paged(self._page, self._day)
        self._prune(request.page)
        if request.summary or request.show or request.hook:
            known = self._backlog.incidents
            account.page, account.incidents = ask(
                self._lake,
                "the summary",
                lambda con: (read_page(con, written.run_ids), read_incidents(con, known)),
            )
        if request.metrics:
            self._gauges = ask(
                self._lake, "the metrics", lambda con: report_gauges(con, written.run_ids)
            )

    def judge(
        self, max_bad_ratio: float, lost: Sequence[tuple[str | None, str, str]]
    ) -> list[TracelakeError]:
        """Return the errors of the runs that are not judged yet, the most severe first.

        Args:
            max_bad_ratio: Share of a run's lines that may be bad.
            lost: What the build has left out.
        """
        left, gates = self._backlog, self._gates
        skipped = self.account.ingested.too_far if self.account.ingested else ()
        bad, failed, cut = ask(
            self._lake,
            "the gates",
            lambda con: (
                bad_lines(con, left.of(Duty.LINES)),
                failures(con, gates, left.of(Duty.GATES), inputs=True) if gates else [],
                cut_short(_cut_runs(con, left.of(Duty.LINES)), skipped),
            ),
        )
        lines = too_many_bad_lines(bad, max_bad_ratio)
        judged = left.of(Duty.GATES) if gates else left.of(Duty.LINES)
        self.account.verdicts = Verdicts(judged, gates, failed, bad, max_bad_ratio)
        out = left_out(self.account.model_failures or ())
        unread = parsers_failed(self.account.ingested.failures if self.account.ingested else ())
        found = (lost_data(lost), unread, out, cut, lines)
        self._verdicts = [verdict for verdict in found if verdict is not None]
        if failed:
            self._verdicts.append(failed_gates(failed, len(gates), self._lake.name))
        return self._verdicts

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        verdict = any(error is known for known in self._verdicts)
        with self._until_end:
            if verdict:
                self.account.errors = list(self._verdicts)
            elif error is not None:
                self.account.errors = [error]
            self.account.exit_code = exit_code_of(error)
            troubles = self._tell()
            # A verdict counts as delivered once the exit code is about to be returned.
            if self.account.verdicts and (verdict or error is None):
                self._backlog.settle(
                    Duty.LINES, *([Duty.GATES] if self.account.verdicts.gates else [])
                )
                # A summary that is only printed is no message: a person tries something.
                if (self._request.hook or self._request.summary) and not troubles:
                    self._backlog.sent(self.account.incidents or ())
        for trouble in troubles[error is None :]:
            self._console.warn(str(trouble))
        if error is None and troubles:
            raise troubles[0]

    def _tell(self) -> list[TracelakeError]:
        """Write the summary and run the hook; their failures become part of the summary."""
        troubles = self._attempt(self._put)
        if refused := self._attempt(self._call):
            troubles += refused
            with suppress(UsageError):  # it was printed when it was written the first time
                self._put()
        troubles += self._attempt(self._measure)
        if self._request.show:
            self._request.show(self._summary())
        return troubles

    def _attempt(self, give: Callable[[], None]) -> list[TracelakeError]:
        try:
            give()
        except TracelakeError as trouble:
            self.account.errors.append(trouble)
            self.account.exit_code = self.account.exit_code or trouble.exit_code
            return [trouble]
        return []

    def _put(self) -> None:
        series = self._request.summary
        if series is not None:
            put_output(series.path, self._summary().encode())
            series.link_latest()
            self._prune(series)

    def _measure(self) -> None:
        if self._request.metrics is None:
            return
        ended = datetime.now().astimezone()
        seconds = (ended - self._request.started).total_seconds()
        gauges = job_gauges(__version__, ended.timestamp(), seconds, self.account.exit_code)
        if self._begun and self._lake.warehouse.is_file():
            # Also after a failure: an alert about an incident must not end and begin again.
            with suppress(TracelakeError):  # then that failure is the exit code
                self._gauges += ask(self._lake, "the metrics", lake_gauges)
        put_output(self._request.metrics, openmetrics([*gauges, *self._gauges]).encode())

    def _call(self) -> None:
        hook = self._request.hook
        trouble = hook and hook.call(self._summary(), self.account.exit_code)
        if trouble:
            raise CheckFailedError(
                f"the command of --post {trouble}",
                hint="its output is above; its standard input is the summary",
            )

    def _summary(self) -> str:
        return self.account.document(datetime.now().astimezone())

    def _prune(self, series: Series) -> None:
        if self._request.keep is None:
            return
        try:
            series.prune(self._request.keep)
        except OSError as error:
            self._console.warn(f"cannot remove files for --keep: {error}")


def _cut_runs(con: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> list[str]:
    rows = con.execute(
        "SELECT DISTINCT run_id FROM faults WHERE name = $1"
        " AND run_id IN (SELECT unnest($2::VARCHAR[])) ORDER BY run_id",
        [EXPANDED_TOO_FAR.name, list(run_ids)],
    ).fetchall()
    return [run_id for (run_id,) in rows]

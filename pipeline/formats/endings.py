"""Tell what ended a job from what its processes and its scheduler print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tracelake.base.packing import spans_of

_TEXT_LIMIT = 200
_BY, _WITH = "ended_by", "ended_with"
# What launchers say of a process that ended: by a signal that nothing survives, and with an error.
_FAILURES = _KILLED, _ERRED = "killed", "error"
_CANCELLED = "cancelled"
# What the others say when one process has ended with a traceback.
_AFTER_A_FAILURE = ("collective_timeout", "network_error")
WARNS = r"(?:\S[^\[\]\n]{0,300}:\d+ )?(?:\(\w+\) )?NCCL WARN "
"""Expression of a warning of NCCL behind host, process and device: with the place in its code or
not; of a plugin that is a whole signature."""
_WARNING = rf"\S+:\d+:\d+ \[\d+\] {WARNS}"
_SLURM = r"(?:slurmstepd\S*: )?error: \*\*\* (?:JOB|STEP) \S+ "
# What a shell says of a process of a script that a signal ended, and which of them train: others
# are monitors, which scripts kill.
_IN_SCRIPT = r"\bline \d+: +\d+ "
_DIED = r"(?:Segmentation fault|Bus error|Aborted|Floating point exception)(?: +\(core dumped\))?"
_TRAINS = r"\S*(?:python|torchrun|deepspeed|accelerate|srun|mpirun)"
_INTERRUPTED = r"^KeyboardInterrupt:?\s*$|Detected KeyboardInterrupt, "
_EXITED = r"^(?:command terminated with exit|[\w.-]+ exited with) code "  # kubectl, docker compose
_UNIT = "Main process exited, code="  # systemd
# Handlers of UCX, Open MPI and Abseil.
_CAUGHT = (
    r"Caught signal (?:4|6|7|8|11) \(|\bSignal: (?:Segm|Bus|Abort|Float|Illegal)[\w ]*\(\d+\)"
    r"|\*\*\* SIG(?:SEGV|BUS|ABRT|FPE|ILL) received at "
)
# Mistakes of a program, at which a device is not broken.
_MISTAKE = (
    r"(?:CUDA|HIP) error: (?:device-side assert|no kernel image|operation not"
    r"|invalid (?:argument|configuration|device|resource))"
)
_FAILED = r"Test (?:NCCL|RCCL) failure \S+:\d+ "  # of nccl-tests
# Causes before their effects: where one rank ends, the others time out or lose their connection.
_KINDS = {
    "out_of_memory": r"(?:CUDA|HIP|NPU|XPU) (?:error: )?out of memory|RESOURCE_EXHAUSTED: "
    r"|CUBLAS_STATUS_ALLOC_FAILED"
    r"|Test (?:CUDA|HIP) failure \S+:\d+ 'out of memory|Cuda failure (?:\d+ )?'out of memory"
    r"|^out of memory$",  # of llm.c
    "host_out_of_memory": r"Detected \d+ oom[-_]kill event"
    r"|srun: error: \S+: tasks? \S+: Out Of Memory"
    r"| exceeded memory limit \(\d+ > \d+\), being killed"  # Slurm before 2020
    r"|\bTERM_MEMLIMIT: |=>> PBS: job killed: v?mem "
    r"|\b[Oo]ut of memory: Kill(?:ed)? process \d+ |Failed with result 'oom-kill'"  # Linux, systemd
    r"|\bOOMKilled(?:\": true|\",|[\s,.;)]|$)"  # Kubernetes, docker inspect
    r"|[1-9]\d* Workers \(tasks / actors\) killed due to memory pressure"  # Ray
    r"|(?:Task was |were )killed due to the node running low on memory"
    r"|DefaultCPUAllocator: |\[Errno 12\] Cannot allocate memory",
    "node_failure": rf"{_SLURM}.* DUE TO NODE FAILURE|srun: error: Node failure on "
    # Ray
    r"|The actor (?:is dead|died) because its node has died|The node with .* has been marked dead ",
    "device_error": r"(?:CUDA|HIP) error: |\[CUDA ERROR\] at file |Memory access fault by GPU "
    rf"|Test (?:CUDA|HIP) failure \S+:\d+ |{_FAILED}'unhandled (?:cuda|hip) error"
    r"|NCCL error in: .*unhandled (?:cuda|hip) error"
    r"|NVRM: Xid \(.*\): \d+|GPU has fallen off the bus"
    r"|HW Exception by GPU |aborting with error : HSA_STATUS_ERROR"
    r"|Cuda failure (?:\d+ )?'(?:an illegal|unspecified launch|uncorrectable)",
    # PyTorch quotes the latest one below its own error.
    "link_error": rf"{_WARNING}(?:NET/|Call to ibv_)|^NET/IB ?: Got completion from peer ",
    "loss_not_finite": r"(?:Rank \d+: )?found (?:NaN|Inf) in local "
    r"|Current loss scale already at minimum|Minimum loss scale reached"
    r"|Loss is (?:nan|-?inf), stopping training|Loss became infinite or NaN at iteration"
    r"|nan loss encountered|loss contains a NaN",
    "collective_timeout": r"Watchdog caught collective operation timeout: "
    r"|ProcessGroup\w+'s watchdog got stuck for \d+ seconds"
    r"|Did not get (?:initial|subsequent) heartbeat\. Waited "  # of NVRx
    # EE1002 and EI0002 of Ascend
    r"|\bStream synchronize timeout\b|\bThe wait execution of the Notify register times out\b",
    "network_error": r"NCCL error in: .*(?:system|network) error|HCCL error in: "
    r"|ncclRemoteError: |ncclSystemError: "
    r"|\bGetting socket times out\b"  # EI0006 of Ascend
    rf"|{_FAILED}'(?:remote process exited|unhandled system error)",
    "nccl_error": rf"{_FAILED}|NCCL error in: ",
    _CANCELLED: r"=>> PBS: job killed: |\bTERM_[A-Z]+: job killed "
    rf"|{_SLURM}(?:ON \S+ )?CANCELLED AT "
    r"|Received (?:1|2|15) death signal, shutting down|SignalException: Process \d+ got signal: "
    rf"|{_UNIT}killed, status=15/TERM"
    rf"|{_INTERRUPTED}|^Terminated\s*$|{_IN_SCRIPT}Terminated +{_TRAINS}",
    # Composer kills what does not end, so `Global rank 0 (PID 7) exited with code -9` is none.
    _KILLED: r"failed \(exitcode: -9\)|exits with return code = -9\b|crashed with exit code -9\b"
    r"|process \d+ terminated with signal SIGKILL"  # torch.multiprocessing
    r"|died with <Signals\.SIGKILL"  # accelerate
    r"|process rank \d+ .*exited on signal 9 |\b(?:shepherd|rank \d+) died from signal 9\b"
    rf"|{_EXITED}137\s*$|{_UNIT}killed, status=9/KILL"
    rf"|^Killed\s*$|{_IN_SCRIPT}Killed +{_TRAINS}",
    _ERRED: r"failed \(exitcode: -?[1-9]|ChildFailedError|exits with return code = -?[1-9]"
    rf"|{_EXITED}[1-9][0-9]*\s*$"
    r"|srun: error: \S+: tasks? \S+: (?:Exited with exit code|Killed|Aborted|Segmentation fault"
    r"|Bus error|Floating point exception|Illegal instruction)"
    r"|Rank \d+ crashed with exit code -?[1-9]|Global rank \d+ \(PID \d+\) exited with code -?[1-9]"
    rf"|^{_DIED}\s*$|{_IN_SCRIPT}{_DIED} +{_TRAINS}"
    rf"|{_MISTAKE}|{_CAUGHT}|{_UNIT}(?:exited|dumped|killed), status=[1-9]"
    r"|Fatal Python error: |\brank \d+ died from signal \d"
    r"|BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"
    r"|MPI_ABORT was invoked on rank \d|application called MPI_Abort\("
    r"|Terminating process because the JAX distributed service detected fatal errors"
    r"|(?:mpirun|prterun) noticed that process rank |Primary job +terminated normally, but ",
}
# What Python prints below a traceback, which a job may survive or print when it has ended.
_ERROR = r"[\w.]*(?:Error|Exception): "
_BARE = r"(?:[\w.]+(?:Error|Exception)|StopIteration)\s*"  # of an error without a message
_NAMED = r"(?:[a-z_]\w*\.)+(?:[A-Z]\w*|error)(?:: \S.*|\s*)"  # of one that is not called so
_THROWN = r"\s*what\(\): +"  # of C++, which ends the process
# Errors that yield to any other: of a process that lost another one, or waited for it. That of a
# checkpoint has those of its ranks below it.
_LOST = re.compile(
    r"Connection (?:closed|reset|refused)|Broken pipe|[Ss]ocket [Tt]imeout|remote process exited"
    r"|got error: |recvValue failed|reached monitoredBarrier|communicator was aborted"
    r"|DistNetworkError|NCCL error: |returned non-zero exit status|died with <Signals"
    r"|CheckpointException ranks:"
    r"|failed \(exitcode: |ChildFailedError|exits with return code |^srun: error: "
)
# What torchrun says at its end of the process that failed first.
_TABLE = (
    r"\s*(?:(Root Cause) \(first observed failure\):"
    r"|(time|host|rank|exitcode) {2,6}: (\S+)(?: \(.*)?)\s*"
)
_ANYWHERE = "|".join(pattern for kind, pattern in _KINDS.items() if kind != "link_error")
UNCAUGHT = "Traceback (most recent call last):"
"""Heading of the errors with which a process ends."""
_HEADING = r"Traceback \(most recent call last\)"
_TRACEBACK = rf"(?:{_HEADING}:|[╭+][─-]+ {_HEADING} [─-]+[╮+])\s*"  # the second is of Rich
# What stands above a traceback that ends no process, and between those of one cause.
_ASIDE = (
    r"Exception (?:ignored in|in thread)\b.*|--- Logging error ---\s*"
    r"|Task exception was never retrieved\s*"
)
_CHAINED = r"During handling of the above exception, .*|The above exception was the direct cause .*"
_DONE = r".*\b[Tt]raining (?:complete|completed|done|finished)\b.*"
LINE = (
    rf"(?:.*[^\w.])?(?:{_ERROR}.*|{_BARE}|{_TRACEBACK}|{_ASIDE}|{_CHAINED})|{_DONE}"
    rf"|.*(?:NCCL WARN |{_ANYWHERE}).*|{_NAMED}|{_THROWN}.*|NET/IB ?: .*|{_TABLE}"
)
"""Expression of the lines that say what ended a job, or may explain it."""

_MISTAKES = re.compile(_MISTAKE)
_PATTERNS = {kind: re.compile(f"(?:{words}).*", re.ASCII) for kind, words in _KINDS.items()}
_ORDER = [*_KINDS]
_ABOVE = re.compile(
    rf"(?P<trace>{_TRACEBACK})|(?P<aside>{_ASIDE})|(?P<chained>{_CHAINED})|(?P<done>{_DONE})",
    re.ASCII,
)
_BEGINS = re.compile(rf"(?:{_TRACEBACK}|{_ASIDE})$", re.ASCII)
# What may be said of a script or an interpreter that ends when the training is done.
_AT_END = re.compile(
    rf"^(?:Killed|Terminated|{_DIED})\s*$|{_IN_SCRIPT}|Fatal Python error: |{_INTERRUPTED}"
    rf"|'s watchdog got stuck |^{_THROWN}",
    re.ASCII,
)
_RAISED = re.compile(
    rf"(?:.*\bUncaught )?({_ERROR}\S.*)|({_BARE}|{_NAMED})|{_THROWN}(\S.*)", re.ASCII
)
_FIRST = re.compile(_TABLE, re.ASCII)
# A scheduler ends a job that has reached a limit, whatever its processes say then.
_LIMIT = re.compile(r" DUE TO |\bTERM_\w*LIMIT\b|=>> PBS: job killed: .* exceeded limit ", re.ASCII)
_SCHEDULER = re.compile(rf"^(?:{_SLURM}|TERM_[A-Z]+: |=>> PBS: job killed: )", re.ASCII)
_WARNS = re.compile(rf"{_WARNING}.*", re.ASCII)
# Warnings of hosts that have no such network, which use another one, and of changes of a network
# that goes on; a port that is down ("port error") may be what ended a job.
_HARMLESS = re.compile(
    r"No device found|Failed to open libibverbs|Could not find ncclGetVersion symbol"
    r"|Resiliency is enabled on a "
    r"|Got (?:non-fatal )?async event ?: (?!.*(?:error|fatal|catastrophic))"
)
# Xids that follow the end of a process, or that a job survives.
_XID_OF_NOTHING = re.compile(r"NVRM: Xid \(.*\): (?:45|63|92),")
_TIMEOUT = re.compile(
    r".*Rank (\d{1,7})\] Watchdog .*\bOpType=(\w+).* ran for (\d{1,12}) milliseconds.*", re.ASCII
)


class Ending:
    """Keeps what was said since the last record: what a job survived did not end it.

    Attributes:
        kind: What ended the job, a key of the kinds; None if nothing says it.
        uncaught: Python printed the traceback with which a process ends.
    """

    def __init__(self) -> None:
        self.kind: str | None = None
        self.uncaught = False
        # What a collector of logs writes before a traceback, and with other numbers behind it.
        self._before: re.Pattern[str] | None = None
        self._above: str | None = None  # what the latest line about a traceback was
        self._done = False  # it said that the training is
        self._aside = False  # the traceback is of what ends no process
        self._survived = ""  # its error
        self._text = ""
        self._warning = ""  # of NCCL, the latest before what was kept
        self._error = ""  # of Python, the first
        self._row: dict[str, str] | None = None  # of the table of torchrun, as far as it is read
        self._first: tuple[str, ...] = ()  # time, host, rank and exit code of who failed first
        self._ranks: set[int] = set()  # that timed out

    @property
    def is_of_launcher(self) -> bool:
        """Return whether it is known that a process has failed, and nothing of why."""
        return self.kind in _FAILURES and not (self._error or self._survived)

    @property
    def is_of_scheduler(self) -> bool:
        """Return whether a scheduler said that it ended the job."""
        return self.kind is not None and _SCHEDULER.search(self._text) is not None

    def read(self, text: str) -> None:
        """Keep what a line says, unless a cause of it was said before."""
        text = self._bare(text)
        warning = _WARNS.search(text) if "NCCL WARN" in text else None
        if self._is_harmless(text, warning):
            return
        # Expressions that are slow, or wider than what they stand for.
        left_out = set[str]() if warning or text.startswith("NET/IB") else {"link_error"}
        if _MISTAKES.search(text):
            left_out.add("device_error")
        for kind, pattern in _PATTERNS.items():
            if kind not in left_out and (found := pattern.search(text)):
                self._read_cause(kind, text, found[0])
                return
        if warning and self.kind is None:
            self._warning = warning[0].strip(" .")
        elif above := _ABOVE.fullmatch(text):
            self._read_above(above.lastgroup)
        elif found := _FIRST.fullmatch(text):
            self._read_table(*found.groups())
        elif (raised := _RAISED.fullmatch(text)) and (not raised[2] or self._above == "trace"):
            self._read_error(raised[raised.lastindex or 0], thrown=raised.lastindex == 3)

    def _read_error(self, text: str, *, thrown: bool) -> None:
        error = _shortened(text.strip(" ."))
        if self._aside and not thrown:
            self._survived = self._survived or error
            return
        self.uncaught |= thrown or self._above == "trace"
        yields = not self._error or (_LOST.search(self._error) and not _LOST.search(error))
        if yields and self.kind != _KILLED:
            self._error = error

    def _read_table(self, begins: str | None, name: str, value: str) -> None:
        if begins:
            self._row = {}
        elif self._row is not None:
            self._row[name] = value
            if name == "exitcode":
                row = tuple(self._row.values())
                self._first = min(self._first or row, row)
                self._row = None

    def _is_harmless(self, text: str, warning: re.Match[str] | None) -> bool:
        return bool(
            (warning and _HARMLESS.search(text))
            or (self._done and _AT_END.search(text))
            or _XID_OF_NOTHING.search(text)
        )

    def _read_cause(self, kind: str, text: str, words: str) -> None:
        if timeout := _TIMEOUT.fullmatch(text):
            self._ranks.add(int(timeout[1]))
        if self._follows(kind, text):
            return
        if self.kind is None or _ORDER.index(kind) < _ORDER.index(self.kind):
            seconds = f"{int(timeout[3]) / 1000:.0f}" if timeout else ""
            whole = f"{timeout[2]} timed out after {seconds} s" if timeout else words
            whole = whole.replace(" / '", "'")  # NCCL has nothing to add
            self.kind, self._text = kind, _shortened(whole.lstrip(" .").rstrip(" .="))

    def _follows(self, kind: str, text: str) -> bool:
        """Return whether it is said of the others of a process that has failed."""
        if self.kind is None and self.uncaught and kind in _AFTER_A_FAILURE:
            return not _LOST.search(self._error)
        failed = self.kind in _FAILURES or (self.kind is None and self._error)
        return bool(failed) and _is_of_launcher(kind, text)

    def _bare(self, text: str) -> str:
        """Return a line without what a collector writes before it, as a traceback shows that."""
        begins = _BEGINS.search(text)
        if begins and (before := text[: begins.start()]).strip():
            self._before = re.compile(re.sub(r"\d+", r"\\d+", re.escape(before)))
        found = self._before.match(text) if self._before else None
        return text[found.end() :] if found else text

    def _read_above(self, what: str | None) -> None:
        """Keep whose traceback follows: that of a thread goes on while its errors are chained."""
        if what == "aside":
            self._aside = True
        elif what == "done":
            self.uncaught = self._aside = False
            self._done = True
        elif what == "trace" and self._above == "trace":
            self._aside = False
        self._above = what

    def attributes(self, world_size: int | None) -> dict[str, str]:
        """Return what ended a job that has not come to its end; nothing if it said nothing.

        Args:
            world_size: Ranks of the job: those that did not time out are where to look.
        """
        error = self._error or self._survived
        if error and (self.kind is None or self.kind in _FAILURES):
            return {_BY: _ERRED, _WITH: error}
        if self.kind is None:
            return {}
        text = self._text
        if self.kind in _FAILURES and len(self._first) == 4:
            _, host, rank, code = self._first
            text = f"rank {rank} on {host} failed first, exit code {code}"
        if text.startswith("Test ") and self._warning:
            text = _shortened(f"{text}, after {self._warning}")
        if self.kind == "collective_timeout" and self._ranks:
            spans = list(spans_of(sorted(self._ranks)))
            text += f" on {_ranks(spans)}"
            others = _between(spans, world_size or 0)
            if others and len(self._ranks) > 1:
                text += f", not on {_ranks(others)}"
        return {_BY: self.kind, _WITH: text}


def first_cause(found: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return what ended a job, of the attributes of its files; nothing if none says it."""
    caused = [attributes for attributes in found if _BY in attributes]
    if not caused:
        return {}
    said = [(attributes[_BY], attributes[_WITH]) for attributes in caused]
    failed = any(kind in _FAILURES for kind, _ in said)
    raised = any(kind == _ERRED and not _LOST.search(text) for kind, text in said)

    def order(cause: tuple[str, str]) -> tuple[bool, bool, int]:
        kind, text = cause
        follows = failed and _is_of_launcher(kind, text)
        lost = _LOST.search(text) if kind == _ERRED else raised and kind in _AFTER_A_FAILURE
        return follows, bool(lost), _ORDER.index(kind)

    kind, text = min(said, key=order)
    return {_BY: kind, _WITH: text}


def without_cause(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes without what ended a job."""
    return {key: value for key, value in attributes.items() if key not in (_BY, _WITH)}


def _is_of_launcher(kind: str, text: str) -> bool:
    """Return whether a launcher may say it when it ends the others of a process that has failed."""
    return kind == _CANCELLED and not _LIMIT.search(text)


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT_LIMIT else f"{text[: _TEXT_LIMIT - 6].rstrip()} [...]"


def _between(spans: list[tuple[int, int]], world_size: int) -> list[tuple[int, int]]:
    """Return the spans of all other ranks; a size that a log says may be any number."""
    edges = [-1, *(min(rank, world_size) for span in spans for rank in span), world_size]
    return [(a + 1, b - 1) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a + 1]


def _ranks(spans: list[tuple[int, int]]) -> str:
    """Return ranks as `rank 3` or `ranks 0-5, 7`."""
    words = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    return f"rank{'' if words[0].isdigit() and len(words) == 1 else 's'} {', '.join(words)}"

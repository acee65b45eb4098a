"""What every LineFormat holds to: all lines are accounted for, and every value is exact.

The cases are made from the golden input of each registered LineFormat and from the example of
docs/extend.md: a new format has them without being named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from tests.line_formats import line_formats, read_by_python
from tests.parsing import ParsedRun, claim_of, parse
from tracelake.base.errors import ContractError
from tracelake.formats import Claim, Format
from tracelake.formats.lines import (
    Context,
    Irrelevant,
    Kind,
    LineFormat,
    Record,
    Reject,
    Row,
    columns_of,
)
from tracelake.schema.tables import columns

EVERY = line_formats()
FORMATS = pytest.mark.parametrize("name", EVERY)
# What a value can be replaced with; each is wrong in some column.
TRAPS = [
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "-0", "007", "+7", "7_0", ""),
    *("9223372036854775807", "9223372036854775808", "99999999999999999999", "1e3", "1E400"),
    *("1.1234567", "0.1234567891", "1.123456", "9223372036854.775807", "9223372036854.775808"),
    *("1.2.3", "1.", ".5", "-0.5", "1,5", "0x10", "nan", "inf", " 1", "1 ", "\u0663", "\uff11"),
    *("17976931348623157" + "0" * 292, "17976931348623159" + "0" * 292, "0.1" + "0" * 400 + "1"),
    *(ODD := ("\u212a", "\u00a0", "\u2028", "\x85", "\x00", "\r", "\ufeff", "\U0001f600")),
]
NOT_UTF8 = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf"]


def read(fmt: LineFormat, data: bytes, block_size: int = 1 << 20) -> list[tuple[int, str, Any]]:
    """What `read_by_python` gives, of the parser; `parse` checks that each line is counted once."""
    return as_read(fmt, parse(fmt, {"a.log": data}, block_size=block_size).only)


def as_read(fmt: LineFormat, run: ParsedRun) -> list[tuple[int, str, Any]]:
    found: list[tuple[int, str, Any]] = [
        (line, "reject", reason) for _, line, _, reason, _ in run.rejects()
    ]
    for table in fmt.tables:
        for row in run.rows(table):
            line = int(str(row.pop("line")))
            assert row.pop("source_id") == 0
            found.append((line, table, {c: v for c, v in row.items() if v is not None}))
    return sorted(found, key=lambda one: one[0])


def stored(lines: list[tuple[int, str, Any]]) -> list[tuple[int, str, Any]]:
    return [one for one in lines if one[1] not in ("context", "irrelevant")]


def shape(text: str) -> str:
    """The text with each number as 0: values of one shape are read by the same code."""
    return re.sub(r"\d[\d.]*", "0", text)


def variants(fmt: LineFormat, raw: bytes, seen: set[tuple[str, str]]) -> Iterator[bytes]:
    """The line with each of its values, or the words of a record, replaced by traps.

    A word of a record is left out where another of its shape was seen behind the same word, meets
    every third trap in turn where one of another shape was, and odd characters alone if it has no
    digit.
    """
    try:
        text = raw.removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return
    spans: list[tuple[tuple[int, int], Sequence[str]]] = []
    for kind in fmt.lines:
        if match := re.compile(kind.pattern, re.ASCII).fullmatch(text):
            if isinstance(kind, Record):
                before = ""
                for word in re.finditer(r"[^\s|]+", text):
                    place, behind = (before, shape(word[0])), (before, "")
                    before = place[1]
                    if place not in seen:
                        traps: Sequence[str] = TRAPS if "0" in before else ODD
                        some = traps[len(seen) % 3 :: 3] if behind in seen else traps
                        spans.append((word.span(), some))
                        seen |= {place, behind}
            spans += [(match.span(group), TRAPS) for group in columns_of(kind.pattern)]
            break
    for (start, stop), some in spans:
        if start >= 0:
            yield from (f"{text[:start]}{trap}{text[stop:]}".encode() for trap in some)


def mutated(data: bytes, random: Random) -> bytes:
    """The file with bytes of some lines replaced."""
    lines = data.split(b"\n")
    for number, raw in enumerate(lines[:-1]):
        if raw and random.random() < 0.5:
            at = random.randrange(len(raw) + 1)
            put = random.choice([*NOT_UTF8, *(trap.encode() for trap in TRAPS)])
            lines[number] = raw[:at] + put + raw[at + random.randrange(3) :]
    return b"\n".join(lines)


@FORMATS
def test_each_trap_in_each_value_is_read_as_python_does(name: str) -> None:
    fmt, files = EVERY[name]
    lines = [raw for data in files for raw in data.split(b"\n")[:-1]]
    lines = [*{shape(raw.decode(errors="replace")): raw for raw in lines}.values()]
    seen: set[tuple[str, str]] = set()
    data = b"".join(one + b"\n" for raw in lines for one in (raw, *variants(fmt, raw, seen), raw))
    wanted = read_by_python(fmt, data)
    assert repr(read(fmt, data)) == repr(stored(wanted))
    assert "bad_value" in {said for _, what, said in wanted if what == "reject"}


@FORMATS
def test_any_bytes_are_read_as_python_does(name: str) -> None:
    fmt, files = EVERY[name]
    random = Random(name)
    for number in range(30):
        data = mutated(random.choice(files) * 3, random)
        size = random.choice((1, 64, 1000, 1 << 20))
        wanted = stored(read_by_python(fmt, data))
        assert repr(read(fmt, data, size)) == repr(wanted), (number, data)


@FORMATS
def test_small_files_are_read_together_as_each_is_alone(name: str) -> None:
    fmt, files = EVERY[name]
    random = Random(name)
    names = [f"{a}{b}.log" for a in "abcdefgh" for b in "pqrst"]  # without numbers, as of ranks
    data = {name: mutated(random.choice(files) * random.choice((1, 9)), random) for name in names}
    data |= {"ap.log": b"\n", "aq.log": b""}
    runs = parse(fmt, data, together=True).runs
    assert len(runs) == len(data)
    for run in runs:
        path = run.run.sources[0].path
        alone = parse(fmt, {path: data[path]}).only
        assert repr(as_read(fmt, run)) == repr(stored(read_by_python(fmt, data[path]))), path
        assert repr(run.facts) == repr(alone.facts), path
        assert run.ledger.sources == alone.ledger.sources, path


def test_no_letter_is_made_of_the_end_of_one_file_and_the_beginning_of_the_next() -> None:
    fmt, _ = EVERY["torchtitan_spans"]
    runs = parse(fmt, {"a.log": b"x\xc3\n", "b.log": b"\xa9x\n"}, together=True).runs
    rejects = [(path, reason) for run in runs for path, _, _, reason, _ in run.rejects()]
    assert rejects == [("a.log", "not_utf8"), ("b.log", "not_utf8")]


def test_a_message_that_is_not_utf8_is_a_message() -> None:
    said = [
        "Ger\xe4t 0 bereit",
        "\xbf\xaa\xca\xbc",
        " iteration 3/ 9 | elapsed time per iteration (ms): 9.0 | \xe4",
    ]
    log = "\n".join([*said, said[-1][:-1], ""]).encode("latin-1")
    found = parse("training_log", {"a.log": log}).only
    (count,) = found.ledger.sources.values()
    assert (count.irrelevant, count.row_lines) == ({"other": 2}, 1)
    assert [one[1:4] for one in found.rejects()] == [(3, 20, "not_utf8")]


@FORMATS
@pytest.mark.parametrize("wrong", NOT_UTF8)
def test_a_line_that_is_not_utf8_costs_itself_alone(name: str, wrong: bytes) -> None:
    fmt, files = EVERY[name]
    # What stands between two progress bars says something of both.
    data = next(data for data in files if b"%|" not in data)
    (line, _, _), *_ = (one for one in read(fmt, data) if one[1] in fmt.tables)
    lines = data.split(b"\n")
    lines[line - 1] = lines[line - 1].removesuffix(b"\r") + wrong
    found = parse(fmt, {"a.log": b"\n".join(lines)}).only
    offset = sum(len(raw) + 1 for raw in lines[: line - 1])
    rejects = [one for one in found.rejects() if one[1] == line]
    ((at, reason),) = (one[2:4] for one in rejects)
    assert at == offset
    # The byte may make it a line of a kind that the format rejects.
    assert reason in {"not_utf8", *(kind.reason for kind in fmt.lines if isinstance(kind, Reject))}
    assert rejects[0][4].endswith("".join(f"\\x{byte:02x}" for byte in wrong))
    others = [one for one in read(fmt, data) if one[0] != line]
    assert [one for one in as_read(fmt, found) if one[0] != line] == others


@FORMATS
def test_a_file_cut_anywhere_gives_rows_of_the_whole(name: str) -> None:
    """A last line without its end is not read: any value in it may be cut."""
    fmt, (data, *_) = EVERY[name]
    whole = parse(fmt, {"a.log": data}).only
    for at in range(0, len(data), 1 + len(data) // 200):
        run = parse(fmt, {"a.log": data[:at]}).only
        lines = data.count(b"\n", 0, at)
        for table in fmt.tables:
            before = [row for row in whole.rows(table) if int(str(row["line"])) <= lines]
            assert run.rows(table) == before
        cut = at > 0 and data[at - 1] != ord("\n")
        assert run.ledger.source(0).irrelevant.get("unfinished", 0) == cut
        assert [one[1] for one in run.faults()] == ["unfinished"] * cut


@FORMATS
def test_line_ends_and_the_heading_do_not_matter(name: str) -> None:
    fmt, (data, *_) = EVERY[name]
    with_returns = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert read(fmt, with_returns) == read(fmt, with_returns.replace(b"\r\n", b"\n"))
    for written in (data, b"\xef\xbb\xbf" + data, with_returns):
        assert claim_of(fmt, written) is claim_of(fmt, data) is not Claim.NO
    assert claim_of(fmt, b"another file\n" * 3) == claim_of(fmt, b"") == 0


# --- values of context lines ------------------------------------------------------------------

LAYER = r" (?P<layer>\w+) (?P<total_ns__us>[\d.]+)"


def blocks(*more: Kind) -> LineFormat:
    return LineFormat(
        name="blocks",
        doc="Layers below their step.",
        heading="",
        lines=(
            Row("layer_times", LAYER),
            Context(r"rank (?P<rank>\d+) stage (?P<stage>\d+)(?: ops (?P<ops>\d+))?"),
            Context(r"step (?P<step>\d+)"),
            Row("train_steps", r"end (?P<step>\d+)"),
            *more,
        ),
    )


@pytest.mark.parametrize("block_size", [1, 30, 1 << 20])
def test_values_of_context_hold_until_the_next_such_line_of_the_file(block_size: int) -> None:
    text = (
        " early 1\nrank 3 stage 1 ops 8\nstep 1\n a 1.5\n b 2\nrank 4 stage 1\n c 3\n"
        "step 99999999999\n d 4\nstep 3\n e 5\nend 7\n"
    )
    run = parse(blocks(), {"a": text.encode()}, block_size=block_size).only
    block = {"rank": 3, "stage": 1, "ops": 8, "step": 1}
    wanted = [
        (1, "reject", "bad_value"),
        (4, "layer_times", {**block, "layer": "a", "total_ns": 1500}),
        (5, "layer_times", {**block, "layer": "b", "total_ns": 2000}),
        (7, "layer_times", {"rank": 4, "stage": 1, "step": 1, "layer": "c", "total_ns": 3000}),
        (8, "reject", "bad_value"),
        (9, "reject", "bad_value"),
        (11, "layer_times", {"rank": 4, "stage": 1, "step": 3, "layer": "e", "total_ns": 5000}),
        (12, "train_steps", {"step": 7, "rank": 4}),
    ]
    assert as_read(blocks(), run) == stored(read_by_python(blocks(), text.encode())) == wanted
    assert run.ledger.source(0).context_lines == 4


def test_values_of_context_end_with_their_file() -> None:
    fmt = blocks()
    together = Format(
        name=fmt.name,
        doc=fmt.doc,
        version=1,
        tables=fmt.tables,
        facts=fmt.facts,
        group=lambda files, gap: [files],  # noqa: ARG005
        parser=fmt.parser,
        rejects=fmt.rejects,
        irrelevant=fmt.irrelevant,
    )
    run = parse(together, {"a": b"rank 1 stage 0\nstep 1\n a 1\n", "b": b" b 1\n"}).only
    assert [row["layer"] for row in run.rows("layer_times")] == ["a"]
    assert run.rejects() == [("b", 1, 0, "bad_value", " b 1")]


def test_the_first_kind_that_matches_the_whole_line_decides() -> None:
    fmt = blocks(
        Reject("torn", r" .*", "A layer row that is torn."),
        Irrelevant("other", r".*x.*", "Text with an x."),
    )
    run = parse(fmt, {"a": b" a 1 \nxyz\nabc\n\n"}).only
    assert [(one[1], one[3]) for one in run.rejects()] == [
        (1, "torn"),
        (3, "unknown_line"),
        (4, "unknown_line"),
    ]
    assert run.ledger.source(0).irrelevant == {"other": 1}


# --- a format that cannot be ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([Context("#.*")], "format f: no kind of line is a row"),
        ([Row("no_such", r"(?P<step>\d+)")], "format f: no table no_such"),
        ([Row("train_steps", r"(?P<step>\d+")], r"format f: '\(\?P<step>.* is no expression"),
        ([Row("train_steps", r"(?P<speed>\d+)")], "the group speed fills no column of train_steps"),
        ([Row("train_steps", r"(?P<step>\d+)(?P<line>\d+)")], "the group line fills no column"),
        ([Row("train_steps", r"(?P<step__ms>\d+)")], "the group step__ms has a unit that is not"),
        ([Row("train_steps", r"(?P<step_time_ns__h>\d+)")], "step_time_ns__h has a unit that is"),
        ([Row("train_steps", r"(?P<loss>\d+)")], "a row of train_steps gives no step"),
    ],
)
def test_a_mistake_of_the_author_is_said_at_once(lines: list[Kind], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        LineFormat(name="f", doc="d", heading="h", lines=lines)


def test_an_expression_that_polars_lacks_is_named() -> None:
    fmt = LineFormat(
        name="f", doc="d", heading="h", lines=[Row("train_steps", r"(?=\d)(?P<step>\d+)")]
    )
    with pytest.raises(ContractError, match=r"polars cannot use .*look-around"):
        parse(fmt, {"a": b"1\n"})


def test_the_traps_meet_every_type_of_column() -> None:
    kinds = {
        columns()[column].type if digits is None else "time"
        for fmt, _ in EVERY.values()
        for kind in fmt.lines
        for column, digits in columns_of(kind.pattern).values()
    }
    assert kinds >= {"INTEGER", "DOUBLE", "time"}

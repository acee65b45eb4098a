"""Plain reading of an OptimusPrime log, line by line with regular expressions: slow and simple.

It holds a whole log in memory, so it has one window where the parser may have several.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tracelake.formats.ledger import escape
from tracelake.formats.optimus.statements import Statements

INT32 = 1 << 31
OPENING = re.compile(rb"\[rank:|layer\[|\| epoch ")
KINDS = (
    (re.compile(rb"[\t ]*$"), "blank"),
    (re.compile(rb"[\t ]*\[rank\d"), "nccl"),
    (re.compile(rb"[\t ]*[EFIW]\d{4} "), "launcher"),
    (
        re.compile(rb"[\t ]*(n\.op:|-- node\.|--- key:|\*{5} st|\*{8}|special_)"),
        "fx_graph",
    ),
)
TRIAL_PIECES = 1 << 20  # over all combinations of lists that are tried
EARLY = -1  # order of the embedding
NAMED = 1 << 40  # order of layers without a number, behind all others


class UnreadableError(Exception):
    """A record that does not parse; its argument is the reason."""


@dataclass
class Piece:
    kind: str  # header, layer, record, bad
    line: int
    reason: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    owner: Block | None = None
    how: str = ""

    @property
    def key(self) -> tuple[object, object]:
        return self.values["layer"], self.values["ops"]

    @property
    def order(self) -> int:
        return order_of(self.values["layer"])


@dataclass(eq=False)
class Block:
    rank: int
    stage: int
    step: int
    group: int
    ordinal: int
    alone: bool
    rows: RowList | None
    contested: bool
    at: int = 0
    missing: int = 0
    order: int = -2
    waiting: list[Piece] = field(default_factory=list)


class Cursor:
    """Reads one record from a line, left to right; blanks between its parts are free."""

    def __init__(self, text: bytes, at: int, reason: str) -> None:
        self.text, self.at, self.reason = text, at, reason

    def take(self, pattern: bytes) -> bytes | None:
        match = re.compile(rb" *(" + pattern + rb")").match(self.text, self.at)
        if match:
            self.at = match.end()
            return match[1]
        return None

    def word(self, word: bytes) -> None:
        if self.take(re.escape(word)) is None:
            raise UnreadableError(self.reason)

    def count(self, word: bytes) -> int:
        self.word(word)
        digits = self.take(rb"\d+")
        if digits is None or len(digits) > 18:
            raise UnreadableError(self.reason)
        return int(digits)

    def decimal(self) -> int:
        match = re.compile(rb"(\d+)(\.\d*)?").match(self.text, self.at)
        if not match or int(match[1]) >= 10**12 or match[2] == b".":
            raise UnreadableError("bad_number")
        if match[2] and len(match[2]) > 7:
            raise UnreadableError("bad_number")
        self.at = match.end()
        return int(Fraction(match[0].decode()) * 10**6)

    def time(self, word: bytes) -> int:
        self.word(word)
        value = self.decimal()
        self.word(b"ms")
        return value

    def pair(self, word: bytes) -> tuple[int, int]:
        value = self.time(word)
        average = self.time(b"(avg=")
        self.word(b")")
        return value, average

    def number(self, word: bytes) -> float:
        self.word(word)
        text = self.take(rb"-?(?:nan|inf|\d+\.?\d*(?:(?<=\d)e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)")
        if text is None or re.search(rb"\.(?!\d)", text):
            raise UnreadableError("bad_number")
        return float(text)


def text_of(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return escape(raw)


def layer_row(cursor: Cursor) -> dict[str, Any]:
    name = cursor.take(rb"layer\[[^\[\]\n =]{1,64}\]")
    if name is None:
        raise UnreadableError("bad_layer")
    name = name[6:-1]
    cursor.word(b":")
    row: dict[str, Any] = {
        "layer": text_of(name),
        "layer_index": int(name) if re.fullmatch(rb"\d{1,9}", name) else None,
        "compute_part_ns": None,
        "comm_part_ns": None,
        "avg_ns": None,
    }
    if re.match(rb" *total=", cursor.text[cursor.at :]):
        row["total_ns"] = cursor.time(b"total=")
        cursor.word(b",")
        try:
            row["ops"] = Cursor(cursor.text, cursor.at, "").count(b"fx_nodes=")
            cursor.count(b"fx_nodes=")
        except UnreadableError:
            row["ops"] = cursor.count(b"ops=")
            cursor.word(b",")
            row["avg_ns"] = cursor.time(b"avg/op=")
    else:
        row["compute_part_ns"], _ = cursor.pair(b"compute=")
        cursor.word(b",")
        row["comm_part_ns"], _ = cursor.pair(b"comm=")
        cursor.word(b",")
        row["total_ns"], row["avg_ns"] = cursor.pair(b"total=")
        cursor.word(b",")
        row["ops"] = cursor.count(b"ops=")
    return row


def progress(cursor: Cursor) -> dict[str, Any]:
    record: dict[str, Any] = {"epoch": cursor.count(b"| epoch "), "step": cursor.count(b"|")}
    record["steps_per_epoch"] = cursor.count(b"/")
    cursor.word(b"batches")
    cursor.word(b"|")
    record["lr"] = cursor.number(b"lr")
    cursor.word(b"|")
    cursor.word(b"ms/batch")
    cursor.take(rb"")
    record["step_time_ns"] = cursor.decimal()
    cursor.word(b"|")
    record["loss"] = cursor.number(b"loss")
    cursor.word(b"|")
    record["ppl"] = cursor.number(b"ppl")
    if max(record["epoch"], record["step"], record["steps_per_epoch"]) >= INT32:
        raise UnreadableError("bad_number")
    if not re.match(rb" *\| epoch ", cursor.text[cursor.at :]):
        cursor.take(rb"\|")
    return record


def header(text: bytes, at: int) -> tuple[int, dict[str, Any]] | None:
    """End and values of a header; None where none begins; its title ends at the next opening."""
    following = OPENING.search(text, at + 1)
    title = text[at : following.start() if following else len(text)]
    time = title.find(b"forward time", 6)
    if time < 0:
        return None
    step = title.find(b"step ", time)
    cursor = Cursor(text, at, "bad_header")
    values: dict[str, Any] = {"rank": cursor.count(b"[rank:"), "stage": cursor.count(b"stage:")}
    cursor.word(b"]")
    if step < 0:
        raise UnreadableError("bad_header")
    cursor.at = at + step
    values["step"] = cursor.count(b"step ")
    if max(values.values()) >= INT32:
        raise UnreadableError("bad_header")
    return cursor.at, values


def pieces_of(text: bytes, line: int) -> list[Piece]:
    """Every record of a line, good or bad."""
    found = []
    at = 0
    while match := OPENING.search(text, at):
        start, at = match.start(), match.end()
        kind = {b"[": "header", b"l": "layer", b"|": "record"}[match[0][:1]]
        cursor = Cursor(text, start, {"layer": "bad_layer", "record": "bad_progress"}.get(kind, ""))
        try:
            if kind == "header":
                read = header(text, start)
                if read is None:
                    continue
                at, values = read
            else:
                values = layer_row(cursor) if kind == "layer" else progress(cursor)
                at = cursor.at
        except UnreadableError as error:
            if kind == "layer" and re.match(rb"[\w.]", text[start - 1 : start], re.ASCII):
                continue
            found.append(Piece("bad", line, str(error)))
        else:
            found.append(Piece(kind, line, values=values))
    return found


Slot = tuple[int, int]
RowList = tuple[tuple[object, object], ...]


def order_of(layer: object) -> int:
    if layer == "embed":
        return EARLY
    return int(str(layer)) if re.fullmatch(r"0|[1-9]\d{0,8}", str(layer)) else NAMED


def ascends(rows: RowList) -> bool:
    orders = [order_of(layer) for layer, _ in rows]
    return all(a < b or b == NAMED for a, b in itertools.pairwise(orders))


def disorder(lists: Mapping[Slot, RowList | None]) -> list[tuple[Slot, Slot]]:
    """Slots of neighbouring stages of which the upper begins before the lower ends."""
    bounds = [
        (slot[1], order_of(rows[0][0]), order_of(rows[-1][0]), slot[0])
        for slot, rows in lists.items()
        if rows
    ]
    pairs = itertools.pairwise(sorted(bounds))
    return [((a[3], a[0]), (b[3], b[0])) for a, b in pairs if a[2] > b[1]]


class Attribution:
    """Owners of layer rows, row by row; see tracelake.formats.optimus.owners for the rules."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.size = len(pieces)
        self.doubted = False
        self.pieces = [piece for piece in pieces if piece.kind != "record"]
        self.lines = Counter(piece.line for piece in self.pieces)
        self.on_line = {
            line: list(group)
            for line, group in itertools.groupby(self.pieces, key=lambda piece: piece.line)
        }

    def votes(self) -> dict[Slot, Counter[RowList]]:
        """Row lists of blocks that nobody seems to have written into, by rank and stage."""
        votes: dict[Slot, Counter[RowList]] = {}
        for i, piece in enumerate(self.pieces):
            if piece.kind != "header":
                continue
            ranked = votes.setdefault((piece.values["rank"], piece.values["stage"]), Counter())
            rows = list(itertools.takewhile(lambda p: p.kind == "layer", self.pieces[i + 1 :]))
            following = self.pieces[i + 1 + len(rows) :][:1]
            alone = all(self.lines[p.line] == 1 for p in [piece, *rows])
            after_header = i > 0 and self.pieces[i - 1].kind == "header"
            ended = not following or following[0].kind == "header"
            if rows and alone and ended and not after_header:
                ranked[tuple(row.key for row in rows)] += 1
        return votes

    def complete(self) -> bool:
        """Whether every slot printed all its rows in every step, and all the same steps."""
        spans = set()
        if self.doubted:
            return False
        for blocks in self.history.values():
            steps = [step for step, _ in blocks]
            if steps != list(range(steps[0], steps[0] + len(steps))):
                return False
            if not all(b.rows and b.at == len(b.rows) and not b.missing for _, b in blocks):
                return False
            spans.add((steps[0], steps[-1]))
        return len(spans) <= 1

    def resolve(self) -> None:
        candidates = {}
        for slot, ranked in sorted(self.votes().items()):
            most = max(ranked.values(), default=0)
            candidates[slot] = [
                rows
                for rows, n in ranked.most_common(8)
                if (2 * n >= most if most >= 8 else ascends(rows))
            ]
        chosen = {slot: lists[0] if lists else None for slot, lists in candidates.items()}
        several: list[Slot] = []
        contested: set[Slot] = set()
        for slot, lists in candidates.items():
            trials = math.prod(len(candidates[other]) for other in (*several, slot))
            if len(lists) > 1 and trials * self.size <= TRIAL_PIECES:
                several.append(slot)
            elif len(lists) > 1:
                contested.add(slot)
        costs: dict[tuple[RowList, ...], tuple[int, int]] = {}
        for rows in itertools.product(*(candidates[slot] for slot in several)):
            tried = {**chosen, **dict(zip(several, rows, strict=True))}
            known = {slot: rows for slot, rows in tried.items() if slot not in contested}
            costs[rows] = self.run(tried, contested), len(disorder(known))
        for k, slot in enumerate(several):
            best = {rows[k] for rows, cost in costs.items() if cost == min(costs.values())}
            chosen[slot] = min(best, key=candidates[slot].index)
            if len({tuple(layer for layer, _ in rows) for rows in best}) > 1:
                contested.add(slot)
        votes = self.votes()
        known = {slot: rows for slot, rows in chosen.items() if slot not in contested}
        for pair in disorder(known):
            counts = [votes[slot][chosen[slot] or ()] for slot in pair]
            for slot, count in zip(pair, counts, strict=True):
                if count == min(counts) and count < 8:
                    contested.add(slot)
        self.run(chosen, contested)

    def doubt(self) -> None:
        """In a log of under 32 steps, rows in disorder need another step that says the same."""
        rows = [piece for piece in self.pieces if piece.kind == "layer"]
        given = [piece for piece in rows if piece.owner]
        if len({piece.owner.step for piece in given if piece.owner}) >= 32:
            return
        seen: dict[object, set[tuple[int, int, int]]] = {}
        for piece in given:
            assert piece.owner
            owner = (piece.owner.rank, piece.owner.stage, piece.owner.step)
            seen.setdefault(piece.key, set()).add(owner)
        disorder = False
        plain = self.plain_steps()
        for piece in rows:
            disorder = disorder or piece.how != "block"
            if not piece.owner or piece.how == "merged_by_place" or not disorder:
                continue
            if piece.owner.step in plain:
                continue
            if len(seen[piece.key]) < 2 or len({owner[:2] for owner in seen[piece.key]}) > 1:
                piece.owner, piece.how, piece.reason = None, "", "ambiguous_rank"
                self.doubted = True

    def plain_steps(self) -> set[int]:
        """Steps in which each row follows the header of its block, and another step alike."""
        steps: dict[int, list[object]] = {}
        torn = set()
        for k, piece in enumerate(self.pieces):
            if piece.kind != "layer":
                continue
            above = next((p for p in reversed(self.pieces[:k]) if p.kind == "header"), None)
            if piece.owner:
                block = (piece.owner.rank, piece.owner.stage, piece.owner.step)
                steps.setdefault(block[2], []).append((*block[:2], piece.key))
            header = above and tuple(above.values[name] for name in ("rank", "stage", "step"))
            if not piece.owner or piece.how != "block" or block != header:
                torn |= {piece.owner.step if piece.owner else None, header and header[2]}
        return {
            step
            for step, printed in steps.items()
            if step not in torn and list(steps.values()).count(printed) > 1
        }

    def run(self, lists: Mapping[Slot, RowList | None], contested: set[Slot]) -> int:
        """Gives every row its owner; what the lists leave unexplained."""
        self.lists, self.contested = lists, contested
        self.open: list[Block] = []
        self.history: dict[Slot, list[tuple[int, Block]]] = {}
        self.lost = 0
        self.group = 0
        self.headers: list[Piece] = []
        self.trusted, self.fresh = True, False
        self.placed_line = -1
        self.by_place: list[Piece] = []
        for piece in self.pieces:
            if piece.kind == "layer":
                self.fresh = False
                piece.owner = None
                piece.reason = self.with_list(piece) or ""
            elif piece.kind == "header" or piece.reason in ("bad_header", "rank_not_in_stage"):
                self.header(piece)
            else:
                self.fresh = False
        rejected = sum(p.kind == "layer" and p.owner is None for p in self.pieces)
        return 2 * rejected + self.lost

    def header(self, piece: Piece) -> None:
        if not self.fresh:
            self.group += 1
            self.headers, self.by_place = [], []
            self.fresh = self.trusted = True
        self.headers.append(piece)
        if piece.kind == "bad":
            self.trusted = False
            return
        slot = (piece.values["rank"], piece.values["stage"])
        for block in self.open:
            if block.rank == slot[0]:
                self.lost += block.missing + max(0, len(block.rows or ()) - block.at)
                self.open.remove(block)
                break
        if len(self.open) == 256:
            del self.open[0]
        alone = self.lines[piece.line] == 1
        block = Block(
            *slot,
            piece.values["step"],
            self.group,
            len(self.headers) - 1,
            alone,
            None if slot in self.contested else self.lists[slot],
            slot in self.contested,
        )
        self.open.append(block)
        self.history.setdefault(slot, []).append((piece.values["step"], block))

    def with_list(self, piece: Piece) -> str | None:
        fits = self.fitting(piece.key, later=False)
        fits = fits or self.fitting(piece.key, later=True)
        if not fits and len(self.open) == 1 and self.plain(piece, self.open[0]):
            known = {
                row
                for s, rows in self.lists.items()
                if s not in self.contested
                for row in rows or ()
            }
            block = self.open[0]
            if piece.key not in known and block.rows and block.rows[block.at][0] == piece.key[0]:
                fits = [(block, block.at)]
        if not fits:
            return self.without_list(piece)
        if len(fits) > 1:
            for block, at in fits:
                if at == block.at and block.rows and block.rows[at] == piece.key:
                    block.waiting.append(piece)
            return "ambiguous_rank"
        self.go_on(piece, *fits[0])
        return None

    def fitting(self, row: object, *, later: bool) -> list[tuple[Block, int]]:
        """Open blocks that print the row next, or later, and where."""
        found = []
        for block in self.open:
            ahead = list(enumerate(block.rows or ()))[block.at :]
            places = [k for k, expected in (ahead if later else ahead[:1]) if expected == row]
            found += [(block, k) for k in places[:1]]
        return found

    def plain(self, piece: Piece, block: Block) -> bool:
        """Whether the row stands alone behind the block's header, which stood alone."""
        latest = block.group == self.group and block.ordinal == len(self.headers) - 1
        return latest and block.alone and self.lines[piece.line] == 1

    def go_on(self, piece: Piece, block: Block, place: int) -> None:
        self.give(piece, block)
        block.missing += place - block.at
        if len(block.waiting) == 1 and place == block.at + 1:
            waiting = block.waiting[0]
            self.give(waiting, block, "merged")
            block.missing -= 1
            for other in self.open:
                if other is not block and other.waiting == [waiting]:
                    other.waiting = []
        block.waiting = []
        block.at = place + 1
        if block.at == len(block.rows or ()):
            self.lost += block.missing
            self.open.remove(block)

    def give(self, piece: Piece, block: Block, how: str = "") -> None:
        piece.owner, piece.reason = block, ""
        piece.how = how or ("block" if self.plain(piece, block) else "merged")

    def without_list(self, piece: Piece) -> str | None:  # noqa: PLR0911 - one per rule
        group = [block for block in self.open if block.group == self.group]
        free = [block for block in group if block.rows is None and not block.contested]
        contested = not self.trusted or any(block.contested for block in group)
        if not free and not contested:
            return "unexpected_layer" if self.open else "no_header"
        if contested:
            return "ambiguous_rank"
        how = ""
        block = free[0]
        if len(free) > 1:
            if self.placed_line != piece.line and not self.in_place(piece, free):
                self.trusted = False
                for earlier in self.by_place:
                    earlier.owner, earlier.reason = None, "ambiguous_rank"
                return "ambiguous_rank"
            self.placed_line = piece.line
            place = [p is piece for p in self.on_line[piece.line]].index(True)
            there = [block for block in free if block.ordinal == place]
            if not there:
                return "ambiguous_rank"
            block, how = there[0], "merged_by_place"
        if piece.order <= block.order and piece.order != NAMED:
            return "unexpected_layer"
        for slot, known in self.lists.items():
            for layer, _ in () if slot in self.contested else known or ():
                if (slot[1] - block.stage) * (order_of(layer) - piece.order) < 0:
                    return "unexpected_layer"
        block.order = piece.order
        self.give(piece, block, how)
        if how:
            self.by_place.append(piece)
        return None

    def in_place(self, piece: Piece, free: list[Block]) -> bool:
        line = self.on_line[piece.line]
        if len(line) != len(self.headers) or len({p.line for p in self.headers}) > 1:
            return False
        if any(p.kind != "layer" for p in line):
            return False
        rows = [(b, p) for k, p in enumerate(line) for b in free if b.ordinal == k]
        return all(p.order > b.order for b, p in rows) and all(
            (b2.stage - b1.stage) * (p2.order - p1.order) >= 0
            for (b1, p1), (b2, p2) in itertools.pairwise(rows)
        )


@dataclass
class Reading:
    layer_times: list[dict[str, Any]]
    train_steps: list[dict[str, Any]]
    rejects: list[tuple[int, int, str, bytes]]  # line, byte offset, reason, text
    rows: int
    context: int
    irrelevant: Counter[str]
    statements: Statements
    complete: bool


def kind_of(text: bytes) -> str:
    kind = next((name for pattern, name in KINDS if pattern.match(text)), "other")
    if kind == "other" and b"NCCL " in text:
        return "nccl"
    return "fx_graph" if kind == "other" and b"de.args[" in text else kind


def read(raw: bytes) -> Reading:
    lines = re.findall(rb"[^\n]*\n|[^\n]+", raw)
    statements = Statements()
    pieces: list[Piece] = []
    irrelevant: Counter[str] = Counter()
    context = 0
    texts = {}
    offset = 0
    for number, physical in enumerate(lines, 1):
        text = physical.removesuffix(b"\n").removesuffix(b"\r")
        texts[number] = offset, text
        offset += len(physical)
        found = pieces_of(text, number)
        broken = any(piece.kind == "bad" for piece in found)
        whole = physical.endswith(b"\n")
        said = statements.read(number, text)
        if found and (whole or not broken):
            pieces += found
        elif said:
            context += 1
        else:
            kind = kind_of(text)
            irrelevant["unfinished" if not whole and (broken or kind == "other") else kind] += 1
    if statements.stages:
        line, ranks = statements.stages
        for piece in pieces:
            if piece.kind != "header" or piece.line <= line:
                continue
            if piece.values["rank"] not in ranks.get(piece.values["stage"], ()):
                piece.kind, piece.reason = "bad", "rank_not_in_stage"
    attribution = Attribution(pieces)
    attribution.resolve()
    attribution.doubt()
    rejects: dict[int, str] = {}
    for piece in pieces:
        if piece.reason:
            rejects.setdefault(piece.line, piece.reason)
    good = {p.line for p in pieces if p.kind != "header"} - set(rejects)
    seen: Counter[object] = Counter()
    steps = []
    for piece in pieces:
        if piece.kind == "record":
            key = piece.values["epoch"], piece.values["step"]
            extra = {"copy": seen[key], "batches_covered": 2 if key[1] == 1 else 1}
            steps.append({"line": piece.line, **piece.values, **extra})
            seen[key] += 1
    times = [
        {
            "line": piece.line,
            "rank": piece.owner.rank,
            "stage": piece.owner.stage,
            "step": piece.owner.step,
            **piece.values,
            "attribution": piece.how,
        }
        for piece in pieces
        if piece.owner
    ]
    return Reading(
        times,
        steps,
        [(line, texts[line][0], reason, texts[line][1]) for line, reason in rejects.items()],
        len(good),
        context + len({p.line for p in pieces} - good - set(rejects)),
        irrelevant,
        statements,
        attribution.complete(),
    )

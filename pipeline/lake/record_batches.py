"""Cut and join batches of rows; each result has only the words that its rows use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa


def cut(batch: pa.RecordBatch, rows: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the first rows and the rest, each with only the words that it uses."""
    if rows == batch.num_rows:
        return batch, batch.slice(rows)
    head, rest = batch.slice(0, rows), batch.slice(rows)
    return trimmed(head), trimmed(rest)


def trimmed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows with only the words that they use."""
    arrays = [
        _only_used(column) if isinstance(column, pa.DictionaryArray) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _only_used(words: pa.DictionaryArray) -> pa.DictionaryArray:
    names = len(words.dictionary)
    codes = words.indices.fill_null(names).to_numpy()
    used = np.flatnonzero(np.bincount(codes, minlength=names + 1)[:names])
    if used.size == names:
        return words
    place = np.zeros(names + 1, np.int32)
    place[used] = np.arange(used.size, dtype=np.int32)
    indices = pa.array(place[codes], mask=codes == names)
    return pa.DictionaryArray.from_arrays(indices, words.dictionary.take(pa.array(used)))


def joined(batches: Sequence[pa.RecordBatch], rows: int) -> pa.Table:
    """Return the batches as a table whose columns' words are in alphabetical order.

    To copy all rows into one array per column costs a tenth of storing them, so flat columns stay
    in pieces. The writer must cut values at the same places whatever the batches, so all pieces but
    the last have a multiple of the rows that it takes at a time. Words are numbered in the order in
    which batches bring them: a batch without rows goes first and brings them all, unless every
    batch has all of them in order.

    Args:
        rows: The number of which all pieces but the last have a multiple.
    """
    names, in_order = {}, True
    for i, column in enumerate(batches[0].columns):
        if isinstance(column, pa.DictionaryArray):
            given = [batch.column(i).dictionary.to_pylist() for batch in batches]
            names[i] = sorted(set().union(*given))
            in_order = in_order and all(some == names[i] for some in given)
    if not in_order:
        nothing = batches[0].slice(0, 0)
        columns = [
            _no_rows_of(names[i]) if i in names else column
            for i, column in enumerate(nothing.columns)
        ]
        head = pa.RecordBatch.from_arrays(columns, schema=nothing.schema)
        batches = pa.Table.from_batches([head, *batches]).unify_dictionaries().to_batches()
    table = pa.Table.from_batches(_multiples(batches, rows))
    for i, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):  # the writer takes so many values at a time, not rows
            table = table.set_column(i, field, table.column(i).combine_chunks())
    return table


def _multiples(batches: Sequence[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of a multiple of `rows`; the last one may be smaller."""
    rest: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        start = min(-held % rows, batch.num_rows)
        if rest:
            rest.append(_slice(batch, 0, start))
            held += start
            if held < rows:
                continue
            yield pa.concat_batches(rest)
        stop = batch.num_rows - (batch.num_rows - start) % rows
        if start < stop:
            yield batch.slice(start, stop - start)
        held = batch.num_rows - stop
        rest = [_slice(batch, stop, batch.num_rows)] if held else []
    if rest:
        yield pa.concat_batches(rest)


def _slice(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    """Return rows of a batch; of small runs it is nearly always the batch itself."""
    whole = start == 0 and stop == batch.num_rows
    return batch if whole else batch.slice(start, stop - start)


def _no_rows_of(names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array(names, pa.string()))

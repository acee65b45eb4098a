"""The values of a record do not depend on the records around it."""

from __future__ import annotations

import random

from tests.parsing import parse

# Keys of records with texts of their values: plain, unusual, wrong.
FIELDS = {
    "consumed samples": ["12", "     512", "-3", "9223372036854775807", "9223372036854775808", ""],
    "elapsed time per iteration (ms)": ["1504.5", "1.0000005", "87886501365.888598", "1e3", ".5"],
    "elapsed time per iteration (s)": ["1.504500001", "0.1234567895", "12/15.5", "7 (avg 6.5)"],
    "learning rate": ["1.5E-04", "0", "+1", "1.", "1E-400", "1E400", "1e-04/2e-04"],
    "lm loss": ["2.123456E+00", "nan", "-inf", "2.5 ", "\t2.5", "two", "1" * 25],
    "loss scale": ["1.0", "1024", "1,024"],
    "loss": ["3.5", "nan"],
    "rocm mem usage/free/total/usage ratio": [
        "30.1GB/161.9GB/192.0GB/15.68%",
        "12.5GiB",
        "1(2)",
        "",
    ],
    "number of nan iterations": ["0", "7", "0.5"],
    "grad=norm": ["1.5", "1.5:2"],
    "mtp_1 loss": ["7.5", "a:b=c", ""],
    "no value": ["", "12"],
    "": ["a word", "a word 2", "loss scale: 3", "loss scale=3"],
}
COLUMNS = (
    *("step", "step_time_ns", "consumed_samples", "lr", "loss", "loss_scale", "grad_norm"),
    *("memory_bytes", "nan_steps"),
)


def records(noise: random.Random) -> list[str]:
    """Return records that have the keys of those before, and sometimes one unusual value."""
    found: list[str] = []
    while len(found) < 800:
        keys = noise.sample([*FIELDS], noise.randint(0, len(FIELDS)))
        for _ in range(noise.randint(1, 20)):
            odd, key = noise.random() < 0.6, noise.choice([*keys, "end"])
            texts = {key: FIELDS[key][0] for key in keys}
            end = ""
            if odd and key == "end":
                end = noise.choice(["cut", " 15.6%", " grad norm: 1)", " lm loss: 7.0"])
            elif odd:
                texts[key] = noise.choice(FIELDS[key])
            said = [f" {key}: {text} |" if key else f" {text} |" for key, text in texts.items()]
            twice = said[:1] if noise.random() < 0.02 else []
            found.append(f" iteration {len(found) + 1:6d}/ 1000 |{''.join([*said, *twice, end])}\n")
    return found


def values(text: str) -> list[tuple[object, ...]]:
    """Return what is read of records: values of rows, and reasons of rejects."""
    run = parse("training_log", {"train.log": text.encode()}).only
    read = [tuple(row[column] for column in COLUMNS) for row in run.rows("train_steps")]
    return [*read, *((reason, said) for _, _, _, reason, said in run.rejects())]


def test_a_record_has_the_values_that_it_has_alone() -> None:
    texts = records(random.Random(5))
    alone = [value for text in texts for value in values(text)]
    assert 0 < sum(len(value) == 2 for value in alone) < 300  # rejects
    assert sorted(map(repr, values("".join(texts)))) == sorted(map(repr, alone))


def test_of_two_keys_of_one_column_the_first_counts_in_every_record() -> None:
    texts = [f" iteration {n}/ 9 | lm loss: {n}.5 | loss: 7.5 |\n" for n in range(1, 10)]
    assert [row[4] for row in values("".join(texts))] == [n + 0.5 for n in range(1, 10)]

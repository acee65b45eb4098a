"""Every bench runs, and none accepts a wrong answer; nothing here says how fast anything is."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tests import parsing
from tests.bench import __main__ as command
from tests.bench import answers, compare, inputs, table
from tests.bench.contract import Bench, Result, Role, Settings, benches, tiny_settings
from tests.bench.inputs import Prepared, input_of, prepare
from tests.bench.measure import Candidate, WrongAnswerError, run_rounds
from tests.bench.peers import narrow_peers, peers
from tests.conftest import ROOT
from tests.parsing import large_formats
from tracelake.base.errors import ContractError
from tracelake.formats import formats

PAGE, RESULTS = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "benchmarks.json"


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture
def prepared(work: Path) -> Prepared:
    return prepare(work, "rank_trace", 100_000)


@pytest.mark.parametrize("name", sorted(benches()))
def test_a_bench_runs_and_writes_json_and_a_table(
    name: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = work / f"{name}.json"
    command.main([name, "--tiny", "--work", str(work), "--json", str(target)])
    found = json.loads(target.read_text(encoding="utf-8"))
    rows = table.results_of(found)
    assert {row.bench for row in rows} == {name}
    assert len({(row.case, row.candidate) for row in rows}) == len(rows)
    assert {row.case for row in rows} == {row.case for row in rows if row.role is Role.OURS}
    for row in rows:
        (sample,) = row.samples
        assert sample.wall_s > 0
        assert 2**20 < sample.peak_bytes < 2**31
    if name == "throughput":
        assert {(row.candidate, row.role) for row in rows} >= {
            ("tracelake", Role.OURS),
            ("duckdb", Role.PEER),
            ("sha256", Role.LIMIT),
            ("parquet", Role.LIMIT),
        }
    cells = [line.split("|") for line in table.markdown(found).splitlines() if "|" in line]
    assert {len(one) for one in cells} == {len(cells[0])}
    assert len(cells) == 2 + len(rows)
    assert capsys.readouterr().out == f"{table.markdown(found)}\n"


def test_each_large_format_has_peers_of_each_tool() -> None:
    wanted = {f"{tool}{kind}" for tool in ("python", "polars", "duckdb") for kind in ("", "_plain")}
    assert all(peers(name).keys() == wanted for name in large_formats())


@pytest.mark.parametrize(
    ("name", "peer"),
    [(name, peer) for name in large_formats() for peer in (*peers(name), *narrow_peers(name))],
)
def test_each_peer_gives_the_right_answer(name: str, peer: str, work: Path, tmp_path: Path) -> None:
    found = prepare(work, name, 100_000)
    {**peers(name), **narrow_peers(name)}[peer](found.path, tmp_path)
    answers.check_peer(found, tmp_path)


def test_inputs_are_of_the_size_asked_for_and_no_two_blocks_are_the_same(work: Path) -> None:
    for name in large_formats():
        found = prepare(work, name, 300_000)
        text = found.path.read_bytes()
        assert 300_000 <= found.size_bytes == len(text) < 450_000
        assert found.lines == text.count(b"\n")
        assert prepare(work, name, 300_000) == found
        middle = len(text) // 2
        assert text.count(text[middle : middle + 2_000]) == 1


def test_the_same_seed_gives_the_same_input() -> None:
    for name in large_formats():
        first, second = (
            b"".join(p.text for p in input_of(name).pieces(50_000, np.random.default_rng(1)))
            for _ in range(2)
        )
        assert first == second


@pytest.mark.parametrize("relation", [one.name for one in input_of("rank_trace").relations])
def test_one_wrong_value_of_a_peer_is_found_and_named(
    relation: str, prepared: Prepared, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        folder.mkdir()
    peers("rank_trace")["duckdb"](prepared.path, good)
    answers.check_peer(prepared, good)
    shutil.copytree(good, bad, dirs_exist_ok=True)
    part = next((bad / relation).iterdir())
    duckdb.execute(
        f"""
        COPY (
            SELECT * REPLACE (end_ns + (row_number() OVER () = 7)::BIGINT AS end_ns)
            FROM '{good / relation / part.name}'
        ) TO '{part}' (FORMAT parquet)
        """
    )
    with pytest.raises(WrongAnswerError, match=f"{relation} differs in end_ns$"):
        answers.check_peer(prepared, bad)
    fewer = f"SELECT * FROM '{good / relation / part.name}' OFFSET 1"
    duckdb.execute(f"COPY ({fewer}) TO '{part}' (FORMAT parquet)")
    with pytest.raises(WrongAnswerError, match=f"{relation} differs in rows, "):
        answers.check_peer(prepared, bad)


def test_a_wrong_answer_ends_a_bench(
    work: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peers' answers are right; the reference is bent."""
    ops = {**prepared.expected["ops"], "end_ns": 1}
    bent = replace(prepared, expected={**prepared.expected, "ops": ops})
    throughput = sys.modules["tests.bench.throughput"]
    monkeypatch.setattr(throughput, "prepare", lambda *_: bent)
    only = {"rank_trace": formats()["rank_trace"]}
    monkeypatch.setattr("tests.bench.contract.large_formats", lambda: only)
    with pytest.raises(WrongAnswerError, match="ops differs in end_ns"):
        benches()["throughput"].run(tiny_settings(work))


def test_a_candidate_that_fails_ends_a_bench_with_what_it_said(tmp_path: Path) -> None:
    broken = Candidate("broken", lambda _: [sys.executable, "-c", "raise SystemExit('no disk')"])
    with pytest.raises(WrongAnswerError, match="broken ended with 1:\nno disk"):
        run_rounds([broken], repeat=1, scratch=tmp_path)


def test_rounds_go_in_turn_each_in_a_folder_of_its_own(tmp_path: Path) -> None:
    seen: list[tuple[str, list[str]]] = []

    def candidate(name: str) -> Candidate:
        write = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); print(sys.argv[1])"
        return Candidate(
            name,
            lambda folder: [sys.executable, "-c", write, folder / name],
            lambda folder, output: seen.append(
                (Path(output.strip()).name, sorted(p.name for p in folder.iterdir()))
            ),
        )

    found = run_rounds([candidate("a"), candidate("b")], repeat=2, scratch=tmp_path)
    files = ["launch.json", "launch.txt"]
    assert seen == [("a", ["a", *files]), ("b", ["a", "b", *files])] * 2
    assert [len(found[name]) for name in ("a", "b")] == [2, 2]


def test_memory_is_the_candidates_own(tmp_path: Path) -> None:
    def using(megabytes: int) -> Candidate:
        code = f"b = bytearray({megabytes << 20}); b[::4096] = b[::4096].replace(b'0', b'1')"
        return Candidate(str(megabytes), lambda _: [sys.executable, "-c", code])

    ballast = bytearray(b"\1") * (100 << 20)
    found = run_rounds([using(1), using(64)], repeat=1, scratch=tmp_path)
    small, large = (found[name][0].peak_bytes >> 20 for name in ("1", "64"))
    assert small < len(ballast) >> 20
    assert 60 <= large - small <= 70


def test_a_large_format_without_input_or_peers_is_an_error_that_says_what_to_add(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = formats()["optimus"]
    small = replace(large, volume="ordinary")
    added = {"nccl_log": large, "optimus": large, "step_lines": small}
    monkeypatch.setattr(parsing, "formats", lambda: added)
    assert list(large_formats()) == ["nccl_log", "optimus"]
    with pytest.raises(ContractError, match=r"no bench input for format nccl_log.*inputs/nccl_log"):
        inputs.inputs()
    with pytest.raises(ContractError, match=r"no bench peers for format nccl_log.*peers/nccl_log"):
        peers("nccl_log")


TIMES = [1.0, 1.01, 0.99, 1.005, 0.995]


@pytest.mark.parametrize(
    ("change", "again", "word"),
    [
        ([0.5, 0.51, 0.5, 0.49, 0.5], TIMES, "faster"),
        ([1.2, 1.21, 1.2, 1.19, 1.2], TIMES, "slower"),
        ([0.99, 1.0, 1.01, 1.0, 0.99], TIMES, "within noise"),
        ([0.985, 0.984, 0.986, 0.985, 0.985], TIMES, "within noise"),
        ([0.9, 0.91, 0.9, 0.89, 0.9], [0.8, 1.3, 1.0, 0.9, 1.2], "within noise"),
    ],
)
def test_a_change_is_called_faster_or_slower_only_beyond_the_noise(
    change: list[float], again: list[float], word: str
) -> None:
    key = ("bench", "case", "tracelake")
    (verdict,) = compare.judge({key: {"base": TIMES, "change": change, "again": again}})
    assert verdict.word == word
    assert f"| {word} |" in compare.markdown([verdict])


def test_what_only_one_side_can_do_is_not_compared() -> None:
    assert not list(compare.judge({("b", "c", "new option"): {"change": TIMES}}))


def test_compare_measures_both_checkouts_in_every_round(work: Path) -> None:
    seen: list[Path] = []

    def run(settings: Settings) -> list[Result]:
        assert settings.repeat == 1
        assert not settings.rivals
        seen.append(settings.tree)
        one = Candidate("tracelake", lambda _: [sys.executable, "-c", "pass"])
        samples = run_rounds([one], repeat=1, scratch=settings.scratch)["tracelake"]
        return [Result("stub", "case", "tracelake", Role.OURS, samples, 1)]

    base, change = work / "base", work / "change"
    settings = replace(tiny_settings(work), repeat=3)
    (verdict,) = compare.compare(settings, [Bench("stub", "", run)], base, change)
    assert verdict.key == ("stub", "case", "tracelake")
    assert sorted(seen[:3]) == sorted(seen[3:6]) == [base, base, change]
    assert len(seen) == 9


def test_a_checkout_is_a_folder_or_a_commit(work: Path) -> None:
    assert compare.checkout(work, str(ROOT)) == ROOT
    with pytest.raises(ValueError, match="neither a checkout nor a commit"):
        compare.checkout(work, "no-such-branch")
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    tree = compare.checkout(work, "HEAD")
    assert (tree / "pipeline" / "__init__.py").is_file()
    assert tree == compare.checkout(work, "HEAD")


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert page == table.rendered(page, found), "run: make bench"
    with pytest.raises(ValueError, match="the page has no"):
        table.rendered("# Benchmarks", found)


def test_a_page_that_cannot_take_the_table_ends_before_anything_is_measured(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = PAGE.read_text(encoding="utf-8").replace("<!-- end: results -->", "")
    for text, said in (
        (None, "No such file"),
        ("# Benchmarks", "the page has no <!-- begin: benches -->"),
        (half, "the page has no <!-- begin: results -->"),
    ):
        page = tmp_path / "page.md"
        if text is not None:
            page.write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit):
            command.main(["start_up", "--tiny", "--work", str(work), "--markdown", str(page)])
        told = capsys.readouterr().err
        assert f"{page} cannot take the table: " in told
        assert said in told
        assert "start_up ..." not in told


@pytest.mark.parametrize("text", ["512MB", "512 mb", "512M", "512000000", "512000KB"])
def test_sizes_are_read_as_they_are_written(text: str) -> None:
    assert command._bytes(text) == 512_000_000

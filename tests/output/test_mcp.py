"""`tracelake mcp`, asked by the official client over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from tests.conftest import SAMPLE
from tests.report_lakes import link_run, make
from tests.tiny_lakes import log_run
from tracelake.lake.store import Lake

SLOW = "wd8_tp2_pp2_numl4_bs1_gpt2bpetokenizer-173a3a41"
Work = Callable[[Client], Coroutine[Any, Any, Any]]


def ask(lake: Lake, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The answers to calls of tools in one session; the text of those that fail."""
    code = "from tracelake.cli import main; main()"
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", code, "mcp", "--lake", str(lake.root)],
        env=dict(os.environ),
    )

    async def session() -> list[Any]:
        async with Client(server) as client:
            listed = await client.list_tools()
            answers: list[Any] = [{tool.name: tool.description for tool in listed.tools}]
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                answers.append(
                    result.content[0].text  # type: ignore[union-attr]
                    if result.is_error
                    else result.structured_content
                )
            return answers

    return asyncio.run(session())


def test_every_tool_answers_with_reasons_and_lines(sample_lake: Lake) -> None:
    tools, found, incidents, shown, changed, asked, listed, tables, rows, fixed, *steps = ask(
        sample_lake,
        ("findings", {"run": "173a"}),
        ("incidents", {}),
        ("show", {"run": "803d"}),
        ("diff", {"run": "8c53", "other": "173a"}),
        ("ask", {"name": "slow_ranks", "run": SLOW}),
        ("ask", {}),
        ("describe", {"table": "straggler_ranks"}),
        ("query", {"sql": "FROM ops WHERE run_id = $r", "params": {"r": SLOW}, "max_rows": 3}),
        ("whatif", {"run": "173a", "fix": "rank=2"}),
        ("ask", {"name": "worst_steps", "max_rows": 10}),
        ("ask", {"name": "worst_steps"}),
    )
    assert tools.keys() == {
        *("query", "ask", "describe", "findings", "incidents", "show", "diff", "whatif"),
    }
    assert all(tools.values())
    (finding,) = found["rows"]
    assert (finding["kind"], finding["rank"]) == ("straggler", 2)
    (evidence,) = found["evidence"]
    path, line = evidence["where"].rsplit(":", 1)
    assert "rank2" in path
    assert evidence["shows"] == "longest row in ops of rank 2 of op forward_step"
    (source,) = [p for p in SAMPLE.rglob("*") if str(p).endswith(path)]
    assert "forward_step" in source.read_text().splitlines()[int(line) - 1]
    assert incidents["rows"][0]["latest_run"] == SLOW
    assert incidents["evidence"] == found["evidence"]
    assert shown["reasons"]
    assert all(": " in why["reason"] for why in shown["reasons"])
    assert len(changed["evidence"]) == 2
    assert asked["rows"][0]["rank"] == 2
    assert fixed["question"]["changes"] == ["rank 2 as fast as its peers"]
    assert fixed["evidence"]
    assert asked["reading"]
    assert "slow_ranks" in {question["name"] for question in listed["questions"]}
    assert "slowdown" in {column["column"] for column in tables["rows"]}
    assert (rows["row_count"], rows["truncated"]) == (3, True)
    assert [(some["row_count"], some["truncated"]) for some in steps] == [(10, True), (22, False)]
    assert [e["where"].rsplit(":", 1)[1] for e in rows["evidence"]] == [
        str(row["line"]) for row in rows["rows"]
    ]


def test_what_tests_and_logs_show_has_its_reason_and_line(tmp_path: Path) -> None:
    ended = [("last_step", "5"), ("planned_steps", "9")]
    date = datetime(2025, 3, 1)
    log = log_run(steps=5, complete=False, run_date=date, config="log", attributes=ended)
    logs = {**log, "layer_times": []}
    lake = make(tmp_path / "lake", {"links": link_run(), "log": logs})
    _, all_found, of_links, of_log, why = ask(
        lake,
        ("findings", {}),
        ("findings", {"run": "links"}),
        ("findings", {"run": "log"}),
        ("ask", {"name": "why", "run": "links"}),
    )
    found = [(row["run_id"], row["kind"], row["subject"]) for row in all_found["rows"]]
    assert found == [("links", "slow_node", "host a"), ("log", "incomplete", "run")]
    assert [row["subject"] for row in of_links["rows"]] == ["host a"]
    assert of_links["rows"][0].items() >= why["rows"][0].items()
    (end,) = of_log["evidence"]
    assert end["where"].endswith(f":{logs['sources'][0]['lines']}")
    assert end["shows"] == "end of the first file"


def test_a_wrong_call_is_an_answer_that_says_what_to_do(sample_lake: Lake) -> None:
    _, *answers = ask(
        sample_lake,
        ("query", {"sql": "COPY runs TO 'x'"}),
        ("query", {"sql": "FROM read_csv('/etc/passwd')"}),
        ("query", {"sql": "FROM nowhere"}),
        ("query", {"sql": "FROM ops", "max_rows": 1_000_000}),
        ("show", {"run": "nothing"}),
        ("findings", {"run_id": SLOW}),
        ("query", {"sql": "SELECT 1 AS one"}),
    )
    for answer, said in zip(
        answers,
        (
            "COPY is not allowed",
            "not allowed",
            "nowhere does not exist",
            "give 1 to 1000",
            "no run",
            "run_id\n  Extra inputs are not permitted",
        ),
        strict=False,
    ):
        assert said in answer
    assert answers[-1]["rows"] == [{"one": 1}]

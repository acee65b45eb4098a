"""Make charts as specs for the page, and as pictures; both without a network.

The libraries that draw in a browser (Vega, Vega-Lite, Vega-Embed: BSD 3-clause, University of
Washington Interactive Data Lab) come from vl-convert.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
from importlib.metadata import version
from typing import Any, Literal

import vl_convert

from tracelake.base.disk_cache import cache_of
from tracelake.output.html.charts.kind import ROWS, Kind, Series
from tracelake.output.html.palette import resolved, var

_WIDTH = 560
_WIDE = 900
_HEIGHT = 200
# The version of Vega-Lite that the specs are of, as its schema and as vl-convert names it.
_VEGA_LITE = "6.4.1"
_RENDERED = _VEGA_LITE.rpartition(".")[0]
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def packed(text: str) -> str:
    """Return text as the page's script unpacks it: gzip in base64, 10 to 50 % of its size."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def digest(script: str) -> str:
    """Return the SHA-256 of a script in base64."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@functools.cache
def spec(kind: Kind) -> dict[str, Any]:
    """Return the Vega-Lite spec of a kind, without rows; its width fills its container."""
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{_VEGA_LITE}.json",
        "data": {"name": ROWS},
        "width": "container",
        "height": _HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _CONFIG,
        **kind.draw(),
    }


_CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "axis": {
        "labelColor": var("ink"),
        "titleColor": var("soft"),
        "titleFontWeight": "normal",
        "domainColor": var("line"),
        "gridColor": var("line"),
        "tickColor": var("line"),
        "labelFontSize": 11,
        "titleFontSize": 12,
    },
    "legend": {
        "labelColor": var("ink"),
        "titleColor": var("soft"),
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "orient": "top",
        "symbolSize": 90,
        "symbolBaseFillColor": var("ink"),
        "symbolBaseStrokeColor": var("ink"),
    },
    "line": {"strokeWidth": 1.5},
    "view": {"continuousWidth": 300, "continuousHeight": 300, "stroke": None},
}


def picture(kind: Kind, series: Series, file_type: Literal["png", "svg"]) -> bytes:
    """Return a chart in light mode, as a file."""
    with_rows = resolved(
        json.dumps(
            _present(spec(kind), series)
            | {
                "width": _WIDE if kind.wide else _WIDTH,
                "background": "white",
                "padding": 8,
                "datasets": {ROWS: rows_of(series)},
            }
        )
    )
    if file_type == "svg":
        svg: str = vl_convert.vegalite_to_svg(with_rows, vl_version=_RENDERED, allowed_base_urls=[])
        return svg.encode()
    png: bytes = vl_convert.vegalite_to_png(
        with_rows, vl_version=_RENDERED, allowed_base_urls=[], scale=2
    )
    return png


def _present(spec: dict[str, Any], series: Series) -> dict[str, Any]:
    """Return a spec whose colours are those of names that the rows have, as the page's script."""

    def kept(part: dict[str, Any]) -> dict[str, Any]:
        scale, there = part.get("scale") or {}, set(series.get(part.get("field", ""), ()))
        if not (there and isinstance((scale.get("domain") or [None])[0], str)):
            return part
        pairs = zip(scale["domain"], scale["range"], strict=True)
        names, hues = zip(*(pair for pair in pairs if pair[0] in there), strict=True)
        return part | {"scale": scale | {"domain": names, "range": hues}}

    found: dict[str, Any] = json.loads(json.dumps(spec), object_hook=kept)
    return found


def rows_of(series: Series) -> list[dict[str, Any]]:
    """Return a series for Vega-Lite: an object per row."""
    names = list(series)
    return [dict(zip(names, row, strict=True)) for row in zip(*series.values(), strict=True)]


@functools.cache
def library() -> tuple[str, str]:
    """Return the script that draws specs, as `vegaEmbed`: compressed for the page, and its hash.

    It is that of the installed vl-convert, cached on disk: bundling it takes 2 s.
    """
    kept = cache_of("vega", version("vl-convert-python"), _RENDERED, _SNIPPET)
    script, hashed = json.loads(kept.made("library.json", _bundled))
    return script, hashed


def _bundled() -> bytes:
    script: str = vl_convert.javascript_bundle(_SNIPPET, vl_version=_RENDERED)
    return json.dumps([packed(script), digest(script)]).encode()

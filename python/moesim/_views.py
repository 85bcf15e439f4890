"""Views of records: one line, rows of a table, HTML with a picture of where the time goes."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_GIB = 2**30
_PARTS = (  # of "time", which add up to the step, with colours of the page
    ("compute_s", "compute", "#4477aa"),
    ("exposed_comm_s", "exposed communication", "#ee6677"),
    ("bubble_s", "bubble", "#bbbbbb"),
    ("host_s", "host", "#ccbb44"),
    ("optimizer_s", "optimizer", "#228833"),
    ("other_s", "other", "#aa3377"),
)
_LAYOUT = ("tp", "cp", "ep", "etp", "pp", "vpp")


# --- rows --------------------------------------------------------------------------------------------------------
def _flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            row.update(_flat(value, f"{before}{key}."))
        elif not isinstance(value, list):
            row[before + key] = value
    return row


def _list_of(data: Mapping[str, Any]) -> list[Any] | None:
    for key in ("best", "cells", "points"):
        if isinstance(data.get(key), list):
            return data[key]
    return None


def rows(record: Any) -> list[dict[str, Any]]:
    data = record.to_dict()
    items = _list_of(data)
    return [_flat(data)] if items is None else [_flat(item) for item in items]


# --- one line ----------------------------------------------------------------------------------------------------
def layout(scenario: Mapping[str, Any]) -> str:
    """ "tp 4 pp 8 mbs 1" """
    sizes = scenario.get("layout", {})
    words = [f"{key} {sizes[key]}" for key in _LAYOUT if isinstance(sizes.get(key), int)]
    mbs = scenario.get("training", {}).get("micro_batch_size")
    return " ".join(words + ([f"mbs {mbs}"] if mbs else []))


def _seconds(value: Any) -> str:
    return "-" if value is None else f"{value:.4g} s" if value >= 0.1 else f"{value * 1e3:.4g} ms"


def _percent(value: Any) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def text(record: Any) -> str:
    data, kind = record.to_dict(), type(record).__name__
    if "best" in data and "searched" in data:
        best = data["best"]
        first = f", best {_seconds(best[0]['step_time_s'])} ({layout(best[0]['scenario'])})" if best else ", none fits"
        return f"<{kind}: {data['searched']} layouts{first}>"
    if "step_time_s" in data:
        fits = "" if data.get("feasible", True) else f", does not fit: {data.get('why_infeasible')}"
        name = f" {data['name']}" if data.get("name") else ""
        return f"<{kind}{name}: {_seconds(data['step_time_s'])}, MFU {_percent(data.get('mfu'))}{fits}>"
    items = _list_of(data)
    count = f"{len(items)} rows" if items is not None else f"{', '.join(list(data)[:8])}"
    return f"<{kind}: {count}>"


# --- HTML --------------------------------------------------------------------------------------------------------
def _table(heads: list[str], lines: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bar(time: Mapping[str, Any], step_s: float) -> str:
    """Where the time of the step goes, as a bar with titles to hover."""
    width, at, spans = 640.0, 0.0, []
    for key, name, colour in _PARTS:
        share = (time.get(key) or 0) / step_s if step_s else 0
        if share <= 0:
            continue
        spans.append(
            f'<rect x="{at:.2f}" y="0" width="{share * width:.2f}" height="22" fill="{colour}">'
            f"<title>{name}: {_seconds(time[key])}, {_percent(share)}</title></rect>"
        )
        at += share * width
    legend = " ".join(
        f'<span style="color:{colour}">&#9632;</span> {name} {_percent((time.get(key) or 0) / step_s)}'
        for key, name, colour in _PARTS
        if step_s and (time.get(key) or 0) > 0
    )
    return (
        f'<svg viewBox="0 0 {width:.0f} 22" width="{width:.0f}" height="22" role="img">'
        f"<title>where the step goes</title>{''.join(spans)}</svg><p>{legend}</p>"
    )


def _device_GiB(memory: Mapping[str, Any]) -> str:
    stages = memory.get("stages") or []
    needed = max((s.get("device_B") or 0 for s in stages), default=0)
    return f"{needed / _GIB:.1f}" + (f" of {memory['capacity_B'] / _GIB:.1f}" if memory.get("capacity_B") else "")


def _result(data: Mapping[str, Any]) -> str:
    if not data.get("feasible", True):
        return f"<p><b>does not fit:</b> {escape(str(data.get('why_infeasible')))}</p>"
    band = data.get("error_band")
    lines = [
        ["step time", _seconds(data["step_time_s"]) + (f" ± {_percent(band)}" if band is not None else "")],
        ["tokens/s/GPU", f"{data.get('tokens_per_s_per_gpu') or float('nan'):.1f}"],
        ["TFLOP/s/GPU", f"{data.get('tflops_per_gpu') or float('nan'):.1f}"],
        ["MFU", _percent(data.get("mfu"))],
        ["memory GiB", _device_GiB(data.get("memory") or {})],
    ]
    said = [data[key] for key in ("bottleneck", "caveat") if data.get(key)]
    bar = _bar(data["time"], data["step_time_s"]) if data.get("time") and data.get("step_time_s") else ""
    return _table([str(data.get("name") or "run"), ""], lines) + bar + "".join(f"<p>{escape(s)}</p>" for s in said)


def _plan(data: Mapping[str, Any]) -> str:
    if not data["best"]:
        ways = (data.get("would_fit") or {}).get("ways") or []
        fits = [[way["change"], _seconds(way["step_time_s"])] for way in ways]
        return "<p><b>nothing fits</b></p>" + _table(["would fit", "step"], fits)
    lines = []
    for choice in (data.get("choices") or {}).get("list") or []:
        lines.append(
            [
                ", ".join(choice["kinds"]),
                layout(choice["scenario"]),
                ("= " if choice["tied"] else "") + _seconds(choice["step_time_s"]),
                _percent(choice.get("mfu")),
                f"{choice['device_B'] / _GIB:.1f}",
            ]
        )
    for rank, entry in enumerate(data["best"] if not lines else [], 1):
        lines.append(
            [
                str(rank),
                layout(entry["scenario"]),
                _seconds(entry["step_time_s"]),
                _percent(entry.get("mfu")),
                _device_GiB(entry.get("memory") or {}),
            ]
        )
    note = "<p>stopped early: better ones may be missing</p>" if data.get("interrupted") else ""
    return _table(["choice", "layout", "step", "MFU", "GiB"], lines) + note


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _rows(record: Any) -> str:
    flat = rows(record)
    heads = [key for key in flat[0] if not isinstance(flat[0][key], str) or len(flat[0][key]) < 60][:10] if flat else []
    return _table(heads, [[_cell(row.get(head)) for head in heads] for row in flat])


def html(record: Any) -> str:
    data = record.to_dict()
    if "best" in data and "searched" in data:
        return _plan(data)
    if "step_time_s" in data and "time" in data:
        return _result(data)
    return _rows(record)

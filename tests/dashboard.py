"""The Grafana dashboard of docs/operations/grafana, generated from the list that people read.

`python -m tests.dashboard` writes it; `tests/test_dashboard.py` fails if that was forgotten.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any


FOLDER = Path(__file__).resolve().parent.parent / "docs" / "operations" / "grafana"
FILE = FOLDER / "gatewright.json"
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ALARM = re.compile(r"(.+) (==|<|>) ([\d.]+)")
Json = dict[str, Any]


def rows() -> list[Json]:
    """The list as it is: rows with `title` and `panel`."""
    found: list[Json] = tomllib.loads(FOLDER.joinpath("panels.toml").read_text("utf-8"))["row"]
    return found


def asked(panel: Json) -> list[str]:
    """The PromQL of a panel: its own, or the left sides of its alarm."""
    if "alarm" in panel:
        return [left for left, _, _ in _alarms(panel)]
    return list(panel["ask"])


def steps(panel: Json) -> list[Json]:
    """The colours of a panel; red where its alarm fires. Grafana's steps begin at their number."""
    if "alarm" not in panel:
        return [{"color": "green", "value": None}]
    _, compared, number = _alarms(panel)[0]
    low, high = ("green", "red") if compared == ">" else ("red", "green")
    at = float(number)
    if compared == "==":  # of a gauge that is 0 or 1
        low, high = ("red", "green") if at == 0 else ("green", "red")
        at = 1.0
    return [{"color": low, "value": None}, {"color": high, "value": at}]


def _alarms(panel: Json) -> list[tuple[str, str, str]]:
    found = [ALARM.fullmatch(part) for part in panel["alarm"].split(" or ")]
    return [(each[1], each[2], each[3]) for each in found if each]


def dashboard() -> Json:
    """The complete file, as Grafana imports it."""
    panels: list[Json] = []
    y = 0
    for row in rows():
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": row["title"], "gridPos": place}
        )
        for at, panel in enumerate(row["panel"]):
            down, across = divmod(at, COLUMNS)
            place = {"h": HEIGHT, "w": WIDTH, "x": across * WIDTH, "y": y + 1 + down * HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        y += 1 + -(-len(row["panel"]) // COLUMNS) * HEIGHT
    choice = {"name": "datasource", "label": "Prometheus", "type": "datasource"}
    return {
        "uid": "gatewright",
        "title": "Gatewright",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{**choice, "query": "prometheus"}]},
        "panels": panels,
    }


def _panel(panel: Json, number: int, place: Json) -> Json:
    style = {"mode": "line" if "alarm" in panel else "off"}
    needs = f"Shows something once there is: {panel['needs']}." if "needs" in panel else ""
    return {
        "id": number,
        "type": "timeseries",
        "title": panel["title"],
        "description": needs,
        "gridPos": place,
        "datasource": SOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel["unit"],
                "custom": {"thresholdsStyle": style},
                "thresholds": {"mode": "absolute", "steps": steps(panel)},
            },
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expression, "datasource": SOURCE}
            for at, expression in enumerate(asked(panel))
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

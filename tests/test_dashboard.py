"""The dashboard queries existing metrics, agrees with the alarms, and is not empty."""

import json
import math
import re
from itertools import combinations

import aiohttp
import httpx
import openai
import pytest

from tests.dashboard import FILE, asked, dashboard, rows, steps, text
from tests.faults.envelopes import STYLES, Caller, ask
from tests.local_engine.engine_process import EngineProcess
from tests.local_engine.models import DEMO_MODEL
from tests.promql import Query, scraped
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway
from tests.test_docs import OPERATIONS, page
from tests.test_docs import rows as rows_of


TARGETS = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}
PANELS = [panel for row in rows() for panel in row["panel"]]
ENGINE = "our own engine"


def test_the_file_is_what_the_list_makes() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "python -m tests.dashboard"


def test_grafana_can_place_and_address_every_panel() -> None:
    made = json.loads(FILE.read_text(encoding="utf-8"))
    panels = made["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    assert [each["name"] for each in made["templating"]["list"]] == ["datasource"]
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(0 <= p["gridPos"]["x"] <= 24 - p["gridPos"]["w"] for p in panels)


def test_every_metric_and_label_stands_in_the_manual() -> None:
    known = rows_of(f"{OPERATIONS}/metrics.md")
    for panel in PANELS:
        for expression in asked(panel):
            for name, label in Query(expression, {}, {}).used:
                family = name.removesuffix("_bucket")
                assert family in known, expression
                labels = {"", *re.findall(r"\w+", known[family][1])}
                assert label in labels or (label == "le" and name != family), expression


def test_every_alarm_has_a_panel_whose_threshold_is_its_own() -> None:
    part = page(f"{OPERATIONS}/metrics.md").partition("## Worth an alarm")[2].partition("\n## ")[0]
    alarms = re.findall(r"^\| [^`|]+ \| `([^`]+)` \|", part, re.MULTILINE)
    assert sorted(panel["alarm"] for panel in PANELS if "alarm" in panel) == sorted(alarms)
    for panel in PANELS:
        if "alarm" in panel:
            numbers = {float(n) for n in re.findall(r"(?:==|<|>) ([\d.]+)", panel["alarm"])}
            wanted = {1.0} if "==" in panel["alarm"] else numbers
            assert {step["value"] for step in steps(panel)} == {None, *wanted}


@pytest.mark.anyio
async def test_what_needs_nothing_else_shows_something_after_a_few_requests(
    gateway: RunningGateway, http: aiohttp.ClientSession
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    scrapes = []
    for _ in range(2):
        for style in STYLES:
            assert (await caller.post(style, ask(style, model=TARGETS[style]))).status == 200
        scrapes.append(scraped(await (await http.get(f"{gateway.url}/metrics")).text()))

    plain = [panel for panel in PANELS if "needs" not in panel]
    assert len(plain) > 10
    found = {
        panel["title"]: [Query(each, *scrapes).value for each in asked(panel)] for panel in plain
    }
    assert [title for title, values in found.items() if not all(values)] == []
    served = found["Requests by outcome"][0]
    assert sum(served.values()) == pytest.approx(len(STYLES) / 300)


def test_the_engine_s_panels_show_something_after_an_answer() -> None:
    scrapes = []
    with EngineProcess.started("--model", str(DEMO_MODEL)) as process:
        for _ in range(2):
            with openai.OpenAI(base_url=f"{process.url}/v1", api_key="x", max_retries=0) as client:
                client.chat.completions.create(
                    model="gatewright-demo", messages=[{"role": "user", "content": "What is PII?"}]
                )
            scrapes.append(scraped(httpx.get(f"{process.url}/metrics").text))

    panels = [panel for panel in PANELS if panel.get("needs") == ENGINE]
    assert panels
    for panel in panels:
        for expression in asked(panel):
            value = Query(expression, *scrapes).value
            assert value, expression
            assert not any(map(math.isnan, value.values())), expression


@pytest.mark.parametrize("wrong", ["gatewright_ready +", "avg(gatewright_ready)", "up", "rate(a)"])
def test_what_is_not_understood_is_not_passed_over(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Query(wrong, {}, {})


def test_a_quantile_lies_where_prometheus_puts_it() -> None:
    after = {"gatewright_x": {frozenset({("le", "1")}): 2.0, frozenset({("le", "3")}): 4.0}}
    (value,) = Query("histogram_quantile(0.75, gatewright_x)", {}, after).value.values()
    assert value == 2.0


def test_the_dashboard_belongs_to_no_organisation_of_grafana() -> None:
    """With an `id` in the file, an import would overwrite the dashboard of that number."""
    assert "id" not in dashboard()

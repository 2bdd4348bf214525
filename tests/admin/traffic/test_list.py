"""The list of requests over HTTP: rows, filters, facets, files, kept views, hostile text."""

import csv
import io
import re
from datetime import datetime
from html import unescape
from urllib.parse import urlencode

import msgspec
import pytest

from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.traffic.world import NOW_US, Asked, World


pytestmark = pytest.mark.anyio
TODAY = "2026-11-18"
LIST = "/o/acme/traffic"
HOSTILE = "<script>alert(1)</script>\"'&\u202e=cmd()"


@pytest.fixture
async def world(listener: Listener, browser: Browser) -> World:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    made = World(listener)
    await made.open()
    return made


async def test_an_empty_list_shows_how_to_fill_it(world: World, browser: Browser) -> None:
    answer, page = await browser.send("GET", LIST)
    assert answer.status == 200
    assert "curl" in page
    assert "No requests yet" in page


async def test_the_rows_are_those_recorded_and_a_filter_chooses_among_them(
    world: World, browser: Browser
) -> None:
    ids = await world.write(
        Asked(1, ago_s=7200),
        Asked(2, ago_s=60, data_class="S3", findings={"CREDIT_CARD": 2}),
        Asked(3, data_class="S3", findings={"IN_PAN": 1}, model_requested="nobody"),
    )
    _, page = await browser.send("GET", LIST)
    assert [page.index(each) for each in ids] == sorted(
        (page.index(each) for each in ids), reverse=True
    )
    assert "CREDIT_CARD ×2" in page
    assert "the assistant" in page

    _, cards = await browser.send("GET", f"{LIST}?q=pii:credit_card+since:1h")
    assert [each in cards for each in ids] == [False, True, False]
    _, body = await browser.send("GET", "/api/organisations/acme/traffic?q=route:refused")
    assert [row["request_id"] for row in msgspec.json.decode(body)["rows"]] == [ids[2]]


async def test_facets_count_what_matches_and_lead_there_and_back(
    world: World, browser: Browser
) -> None:
    await world.write(*(Asked(n, complexity_tier="cheap") for n in range(3)))
    await world.write(Asked(9, data_class="S3", findings={"EMAIL": 1}))
    _, page = await browser.send("GET", LIST)
    assert f'href="{LIST}?q=class%3As3"' in page
    _, chosen = await browser.send("GET", f"{LIST}?q=class:s3")
    assert f'href="{LIST}" aria-current="true"' in chosen
    assert "Counted over all 1 that match" in chosen


async def test_what_went_wrong_is_counted_by_its_code_and_found_by_it(
    world: World, browser: Browser
) -> None:
    ids = await world.write(
        Asked(1),
        *(Asked(n, status="failed", outcome={"error": "upstream_timeout"}) for n in (2, 3)),
        Asked(4, status="failed", outcome={"error": "upstream_failed"}),
    )
    _, page = await browser.send("GET", LIST)
    facet = page[page.index("<h2>Error</h2>") :]
    facet = facet[: facet.index("</div>")]
    counted = re.findall(r'href="([^"]+)"[^>]*><span class="cut">(\w+)</span><[^>]*>(\d+)', facet)
    assert [(word, number) for _, word, number in counted] == [
        ("upstream_timeout", "2"),
        ("upstream_failed", "1"),
    ]
    _, chosen = await browser.send("GET", counted[0][0])
    assert [each in chosen for each in ids] == [False, True, True, False]
    assert f'href="{LIST}" aria-current="true" title="upstream_timeout"' in chosen


async def test_a_wrong_filter_is_shown_where_it_was_typed_and_nothing_is_lost(
    world: World, browser: Browser
) -> None:
    answer, page = await browser.send("GET", f"{LIST}?q=cost:>abc+model:x")
    assert answer.status == 400
    assert 'value="cost:&gt;abc model:x"' in page
    assert "<mark>abc</mark>" in page
    answer, body = await browser.send("GET", "/api/organisations/acme/traffic?q=cost:>abc")
    assert answer.status == 400
    assert "dollars" in msgspec.json.decode(body)["error"]["message"]
    for before in ("x", "1", "1.-1", "9" * 20 + ".1", "²³.1"):
        answer, _ = await browser.send("GET", f"{LIST}?before={before}")
        assert answer.status == 400, before


async def test_pages_go_on_where_the_one_before_ended(world: World, browser: Browser) -> None:
    ids = await world.write(*(Asked(n, ago_s=100 - n) for n in range(60)))
    _, body = await browser.send("GET", "/api/organisations/acme/traffic")
    first = msgspec.json.decode(body)
    _, body = await browser.send("GET", f"/api/organisations/acme/traffic?before={first['before']}")
    second = msgspec.json.decode(body)
    seen = [row["request_id"] for row in first["rows"] + second["rows"]]
    assert seen == ids[::-1]
    assert second["before"] == ""
    _, page = await browser.send("GET", LIST)
    assert f"before={first['before']}" in page


async def test_a_span_drawn_on_the_chart_becomes_a_part_of_the_filter(
    world: World, browser: Browser
) -> None:
    ids = await world.write(Asked(1, ago_s=7200), Asked(2))
    path = f"{LIST}?q=status:ok&since=2026-11-18T10:30:00Z&until=2026-11-18T11:30:00Z"
    _, page = await browser.send("GET", path)
    assert [each in page for each in ids] == [False, True]
    assert "since%3A2026-11-18T10%3A30%3A00Z" in page


def sent_again(page: str) -> dict[str, str]:
    """What the filter's form would send as it stands."""
    form = page[page.index('<form class="filter"') :]
    fields = re.findall(r'<input[^>]* name="(\w+)" value="([^"]*)"', form[: form.index("</form>")])
    return {name: unescape(value) for name, value in fields}


async def test_a_span_of_the_address_outlives_another_press_of_the_filter(
    world: World, browser: Browser
) -> None:
    await world.write(Asked(1))
    since, until = "2026-11-18T10:30:00Z", "2026-11-18T11:30:00Z"
    span = {"since": since, "until": until}
    _, page = await browser.send("GET", f"{LIST}?{urlencode({'q': 'status:ok'} | span)}")
    assert sent_again(page) == {"q": f"status:ok since:{since} until:{until}"}
    answer, page = await browser.send("GET", f"{LIST}?{urlencode({'q': 'cost:x'} | span)}")
    assert (answer.status, sent_again(page)) == (400, {"q": "cost:x"} | span)
    answer, page = await browser.send("GET", f"{LIST}?{urlencode(span | {'since': 'x'})}")
    assert (answer.status, sent_again(page)) == (400, {"q": "", "until": until})


async def test_an_end_alone_is_an_end_and_a_wrong_one_is_named_itself(
    world: World, browser: Browser
) -> None:
    ids = await world.write(Asked(1, ago_s=7200), Asked(2))
    for part, expected in (
        ("until=2026-11-18T10:30:00Z", [True, False]),
        ("since=2026-11-18T10:30:00Z", [False, True]),
        ("q=until:2026-11-18T10:30:00Z&since=7d", [True, False]),
    ):
        _, page = await browser.send("GET", f"{LIST}?{part}")
        assert [each in page for each in ids] == expected, part
    answer, page = await browser.send("GET", f"{LIST}?q=status:ok&until=x")
    assert answer.status == 400
    assert "“until” is 24h" in page
    assert "<mark>" not in page, "nothing is wrong with the filter"
    assert "aria-invalid" not in page, "nor is its field"


async def test_a_list_says_that_nothing_is_found_as_what_it_is_asked_for(
    world: World, browser: Browser
) -> None:
    """It counted zero requests with `pii:HEALTH`, which an auditor would be told."""
    await world.write(Asked(1, data_class="S3", findings={"UK_NHS": 1}))
    said = "<code>HEALTH</code> is not a kind of finding"
    for at in (LIST, "/o/acme/audit"):
        _, page = await browser.send("GET", f"{at}?q=project:assistant+pii:health,EMAIL")
        assert said in page
        assert "<code>EMAIL</code>" not in page
        assert "UK_NHS, UK_NINO" in page, "what there is instead"
        for known in ("pii:UK_*", "pii:none", "-pii:EMAIL", "pii:health*cost:>1", ""):
            _, page = await browser.send("GET", f"{at}?q={known}")
            assert said not in page


async def test_leaving_out_what_nothing_is_found_as_is_said_to_leave_out_nothing(
    world: World, browser: Browser
) -> None:
    """The list holds every request, and was said to be of such that no request has."""
    await world.write(Asked(1, data_class="S3", findings={"UK_NHS": 1}))
    said = "<code>-pii:HEALTH</code> excludes nothing"
    for at in (LIST, "/o/acme/audit"):
        _, page = await browser.send("GET", f"{at}?q=-pii:health,EMAIL")
        assert said in page
        assert "an empty list says nothing" not in page
        assert "UK_NHS, UK_NINO" in page, "what there is instead"
        _, page = await browser.send("GET", f"{at}?q=-pii:health+pii:RELIGION")
        assert said in page
        assert "<code>RELIGION</code> is not a kind of finding" in page
        _, page = await browser.send("GET", f"{at}?q=-pii:EMAIL")
        assert "excludes nothing" not in page


async def test_no_file_and_no_program_is_told_none_of_what_is_never_found(
    world: World, browser: Browser
) -> None:
    """An empty file was handed to an auditor as the answer that there is no such request."""
    await world.write(Asked(1, data_class="S3", findings={"UK_NHS": 1}))
    await seeding.person(world.listener, "cara", "compliance")
    await browser.sign_in_as("cara", seeding.PASSWORD)
    api = "/api/organisations/acme"
    for at in (f"{LIST}/export", f"{api}/traffic", "/o/acme/audit/export", f"{api}/audit/gathered"):
        answer, text = await browser.send("GET", f"{at}?q=pii:EMAIL,HEALTH")
        assert answer.status == 400, at
        assert "“HEALTH” is not a kind of finding; the kinds are ADDRESS, AGE" in unescape(text)
        for known in ("pii:UK_*", "-pii:HEALTH"):
            assert (await browser.send("GET", f"{at}?q={known}"))[0].status == 200, at


async def test_a_list_of_a_month_leads_to_the_pack_that_proves_its_records(world: World) -> None:
    """Who answers an auditor typed the month a second time, on another page."""
    await world.write(Asked(1))
    pack = "/o/acme/compliance/packs/new"
    await seeding.person(world.listener, "cora", "compliance")
    await seeding.person(world.listener, "vera", "viewer")
    async with browsing(world.listener) as cora, browsing(world.listener) as vera:
        await cora.sign_in_as("cora", seeding.PASSWORD)
        for query, days in {
            "since:2026-10-01 until:2026-11-01": ("2026-10-01", "2026-10-31"),
            "since:2026-10-05": ("2026-10-05", TODAY),
            "since:2026-10-05 until:2027-10-05": ("2026-10-05", TODAY),
            "until:2026-10-05": (),
            "since:2026-10-05 until:2026-10-05": (),
            "since:9999-12-31": (),
            "since:999999d": (),
            "since:1h until:0001-01-01": (),
            "": (),
        }.items():
            _, page = await cora.send("GET", f"{LIST}?{urlencode({'q': query})}")
            asked = "?since={}&amp;until={}&amp;policies=on".format(*days) if days else ""
            assert f'href="{pack}{asked}"' in page, query
        await vera.sign_in_as("vera", seeding.PASSWORD)
        assert pack not in (await vera.send("GET", LIST))[1]


async def test_files_hold_all_that_matches_make_no_formula_and_leave_a_record(
    world: World, browser: Browser
) -> None:
    await world.write(*(Asked(n, ago_s=500 - n) for n in range(205)))
    await world.write(Asked(999, model_requested="=HYPERLINK(1)", outcome={"target": "x"}))
    answer, text = await browser.send("GET", f"{LIST}/export?form=csv&q=status:ok")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(text)))
    _, lines = await browser.send("GET", f"{LIST}/export?form=jsonl&q=status:ok")
    values = [msgspec.json.decode(line) for line in lines.splitlines()]
    assert [row["request_id"] for row in rows] == [row["request_id"] for row in values]
    assert len({row["request_id"] for row in rows}) == 205
    assert all(row["model_requested"][:1] not in "=+-@" for row in rows)
    told = {(row["time"], row["key_name"]) for row in rows}
    assert told == {(row["time"], row["key_name"]) for row in values}
    assert {key_name for _, key_name in told} == {"the assistant"}
    times = [datetime.fromisoformat(row["time"]) for row in rows]
    assert [round(each.timestamp() * 1e6) for each in times] == [int(row["utc_us"]) for row in rows]
    for wrong in ("form=exe", "form=csv&q=cost:x"):
        answer, _ = await browser.send("GET", f"{LIST}/export?{wrong}")
        assert answer.status == 400
    await world.write()
    async with world.listener.database() as database:
        sink = DatabaseAuditSink(
            database, world.listener.settings.path(world.listener.settings.audit.directory)
        )
        deeds = [row async for row in sink.records(AuditQuery(action="traffic.exported"))]
    assert len(deeds) == 2
    assert '"filter":"status:ok"' in deeds[0].projected.record.detail["after"]


async def test_views_are_ones_own_and_lead_to_their_filter(world: World, browser: Browser) -> None:
    form = {
        "name": HOSTILE.replace("\u202e", ""),
        "q": "status:error",
        "to": f"{LIST}?q=status%3Aerror",
    }
    answer, _ = await browser.send("POST", f"{LIST}/views", form)
    assert answer.status == 303
    assert answer.headers["location"] == form["to"]
    _, page = await browser.send("GET", LIST)
    assert f'href="{LIST}?q=status%3Aerror"' in page
    assert "<script>alert" not in page
    answer, _ = await browser.send("POST", f"{LIST}/views", form | {"q": "nope:1"})
    assert answer.status == 400
    for name in (" ", HOSTILE, "x" * 81):
        answer, _ = await browser.send("POST", f"{LIST}/views", form | {"name": name})
        assert answer.status == 400
    answer, _ = await browser.send("POST", f"{LIST}/views/drop", form | {"to": "//evil.example"})
    assert answer.headers["location"] == LIST
    _, page = await browser.send("GET", LIST)
    assert "No saved views yet" in page


async def test_hostile_text_is_text_in_every_field(world: World, browser: Browser) -> None:
    ids = await world.write(
        Asked(
            1,
            model_requested=HOSTILE,
            findings={HOSTILE: 3},
            outcome={"error": HOSTILE, "target": "x" * 5_000, "provider": HOSTILE},
        )
    )
    for path in (LIST, f'{LIST}?q="{"<b>"}"', f"{LIST}/{ids[0]}"):
        answer, page = await browser.send("GET", path)
        assert answer.status == 200, path
        assert "<script>alert" not in page
        assert "<b>" not in page


async def test_another_organisations_requests_are_not_there(world: World, browser: Browser) -> None:
    other = World(world.listener, "umbrella")
    await other.open()
    ids = await other.write(Asked(1))
    _, page = await browser.send("GET", LIST)
    assert ids[0] not in page
    for path in (f"{LIST}/{ids[0]}", f"/api/organisations/acme/traffic/{ids[0]}"):
        assert (await browser.send("GET", path))[0].status == 404
    assert (await browser.send("GET", f"/o/umbrella/traffic/{ids[0]}"))[0].status == 200


async def test_a_script_gets_the_rows_alone(world: World, browser: Browser) -> None:
    ids = await world.write(Asked(1))
    _, block = await browser.send("GET", f"{LIST}?live=1", hx_target="div#rows")
    assert block.lstrip().startswith('<div id="rows"')
    assert ids[0] in block
    assert 'hx-trigger="every 3s"' in block
    _, peek = await browser.send("GET", f"{LIST}/{ids[0]}", hx_target="aside#peek")
    assert "<html" not in peek
    assert "Open" in peek


async def test_a_filter_that_finds_nothing_says_so_and_leads_back_to_everything(
    world: World, browser: Browser
) -> None:
    for room, what in (("traffic", "request"), ("audit", "record")):
        _, page = await browser.send("GET", f"/o/acme/{room}?q=target:nowhere")
        assert f"No {what} matches this filter." in page
        assert f'<a href="/o/acme/{room}">Show all {what}s</a>' in page
        assert "Counted over" not in page
        assert "No records yet" not in page


async def test_a_key_is_found_by_the_name_that_the_list_shows(
    world: World, browser: Browser
) -> None:
    other = await world.listener.issue_key("another", world.organisation)
    await world.listener.issue_key("the assistant", "globex")
    ids = await world.write(Asked(1), Asked(2, key_id=other))
    for query, shown in {
        "key:%22the+assistant%22": [True, False],
        "key:the*": [True, False],
        f"key:{world.key_id}": [True, False],
        "-key:%22the+assistant%22": [False, True],
        "key:nobody": [False, False],
    }.items():
        _, page = await browser.send("GET", f"{LIST}?q={query}")
        assert [each in page for each in ids] == shown, query
        _, body = await browser.send("GET", f"/api/organisations/acme/traffic?q={query}")
        assert len(msgspec.json.decode(body)["rows"]) == sum(shown), query
    _, page = await browser.send("GET", f"{LIST}?q=key:%22the+assistant%22")
    (chosen,) = re.findall(r'<a href="([^"]*)" aria-current="true" title="the assistant">', page)
    assert chosen == LIST, "chosen once, and led back from"
    assert page.count('title="the assistant"><span class="cut">') == 1


async def test_a_pattern_is_not_counted_as_a_value(world: World, browser: Browser) -> None:
    await world.write(Asked(1, model_requested="claude-x"), Asked(2, model_requested="claude-y"))
    _, page = await browser.send("GET", f"{LIST}?q=model:claude*")
    assert 'title="claude-x"' in page
    assert 'title="claude*"' not in page


async def test_a_word_alone_does_not_pass_for_a_search_of_what_was_said(
    world: World, browser: Browser
) -> None:
    await world.write(Asked(1, content=b"a haiku"))
    for path in (LIST, "/o/acme/audit"):
        _, page = await browser.send("GET", f"{path}?q=haiku")
        assert "content is sealed, and no filter searches it" in page
        _, page = await browser.send("GET", f"{path}?q=req_0")
        assert "content is sealed" not in page

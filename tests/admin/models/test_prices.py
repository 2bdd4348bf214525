"""Prices compared: what another file changes, what last month would have cost, what is wrong."""

import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from msgspec import structs

from admin.access import CSRF_HEADER, csrf_of
from admin.models.price_diff import AMOUNTS, Used, compare
from admin.models.price_entries import begun_with, entry_in
from gateway.errors import RequestInvalid
from gateway.money.catalogue import (
    Catalogue,
    Entry,
    load_catalogue,
    shipped_catalogue,
    shipped_text,
)
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio

AT = "/models/prices"
MODEL = "gpt-6.2-sol"
ENTRY = shipped_catalogue().models[MODEL]
HOUSE = shipped_catalogue().models["in-house"]
TARGETS = {"claude": MODEL, "house": "in-house"}


def file_of(name: str = MODEL, **changes: object) -> str:
    """A price file with one entry."""
    entry = structs.asdict(structs.replace(ENTRY, **changes))
    lines = [f'[models."{name}"]']
    lines += [f'parameters.{key} = "{stance}"' for key, stance in ENTRY.parameters.items()]
    for field, value in entry.items():
        if isinstance(value, dict):
            continue
        shown = sorted(value) if isinstance(value, (frozenset, list)) else value
        lines.append(f"{field} = {json.dumps(shown, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


@pytest.fixture
async def listener(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    doubled = ENTRY.output_microusd_per_mtok * 2
    (tmp_path / "own.toml").write_text(file_of(output_microusd_per_mtok=doubled))
    async with Listener(tmp_path, sqlite_url, '[prices]\nfile = "own.toml"\n') as running:
        yield running


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_columns_that_differ_stand_with_old_new_and_percent_and_used_models_first() -> None:
    before = Catalogue({"a": ENTRY, MODEL: ENTRY, "z": ENTRY})
    cheaper = structs.replace(
        ENTRY,
        input_microusd_per_mtok=ENTRY.input_microusd_per_mtok // 2,
        flex_percent=0,
        capabilities=ENTRY.capabilities - {"tools"} | {"top_k"},
        as_of="2026-11-20",
    )
    after = Catalogue({MODEL: cheaper, "new": ENTRY, "z": ENTRY})
    diff = compare(before, after, TARGETS, [])

    assert [(each.model, each.kind) for each in diff.changes] == [
        *((MODEL, "changed"), ("a", "removed"), ("new", "added"))
    ]
    assert diff.same == 1
    cells = {cell.column: cell for cell in diff.changes[0].cells}
    assert cells["input"].share == -0.5
    assert (cells["input"].before, cells["input"].after) == (
        ENTRY.input_microusd_per_mtok,
        cheaper.input_microusd_per_mtok,
    )
    assert cells["flex, percent"].after == 0
    assert (cells["can no more"].before, cells["can now"].after) == ("tools", "top_k")
    assert set(cells) == {"input", "flex, percent", "can no more", "can now"}
    assert diff.changes[0].targets == ("claude",)


def test_nothing_of_an_entry_changes_unseen() -> None:
    """But where it was read, and when: whoever agrees to a file agrees to what it changes."""
    unshown = {"source", "as_of", "parameters_source", "parameters_as_of"}
    other: dict[str, object] = {"vendor": "else", "tier": "cheap", "capabilities": frozenset()}
    other["parameters"] = {"seed": "no", "logit_bias": "unknown"}
    for name in Entry.__struct_fields__:
        changed = other.get(name, 7 if isinstance(getattr(ENTRY, name), int) else "else")
        after = Catalogue({MODEL: structs.replace(ENTRY, **{name: changed})})
        diff = compare(Catalogue({MODEL: ENTRY}), after, {}, [])
        assert bool(diff.changes) is (name not in unshown), name
    (change,) = compare(Catalogue({}), Catalogue({MODEL: ENTRY}), {}, []).changes
    assert {(cell.column, cell.before, cell.share) for cell in change.cells} == {
        (column, "", None) for column in AMOUNTS.values()
    }
    taken = {"seed": "yes", "top_k": "unknown"}
    before = Catalogue({MODEL: structs.replace(ENTRY, parameters=taken)})
    now = structs.replace(ENTRY, parameters=other["parameters"], batch_percent=0)
    (change,) = compare(before, Catalogue({MODEL: now}), {}, []).changes
    cells = [(cell.column, cell.before, cell.after) for cell in change.cells]
    assert cells == [("batch, percent", 50, 0), ("takes seed", "yes", "no")]


def test_the_greatest_difference_comes_first_and_what_was_not_used_is_not_there() -> None:
    half = structs.replace(
        ENTRY,
        input_microusd_per_mtok=ENTRY.input_microusd_per_mtok // 2,
        output_microusd_per_mtok=ENTRY.output_microusd_per_mtok // 2,
    )
    names = dict.fromkeys(("a", "b", "c", "d", "e"), MODEL)
    used = [
        *(Used("a", 1, 10, 10, 100, 0), Used("b", 1, 10, 10, 400, 0), Used("c", 1, 0, 0, 0, 0)),
        *(Used("d", 1, 0, 5, 0, 0), Used("e", 1, 5, 0, 0, 0), Used("gone", 1, 5, 5, 5, 0)),
    ]
    diff = compare(Catalogue({MODEL: ENTRY}), Catalogue({MODEL: half}), names, used)
    assert [each.target for each in diff.effects] == ["b", "a", "d", "e"]
    same = compare(Catalogue({MODEL: ENTRY}), Catalogue({MODEL: ENTRY}), names, used)
    assert [each.target for each in same.effects] == ["b", "a", "d", "e"]
    assert {each.more_microusd for each in same.effects} == {0}


def test_what_was_paid_grows_as_the_list_price_of_its_tokens_does() -> None:
    dearer = structs.replace(
        ENTRY,
        input_microusd_per_mtok=ENTRY.input_microusd_per_mtok * 3,
        output_microusd_per_mtok=ENTRY.output_microusd_per_mtok * 3,
    )
    paid = structs.replace(HOUSE, output_microusd_per_mtok=2_000_000)
    before = Catalogue({MODEL: ENTRY, "in-house": HOUSE})
    after = Catalogue({MODEL: dearer, "in-house": paid})
    used = [
        Used("claude", 10, 1_000_000, 500_000, 700, 0),
        Used("house", 4, 100, 1_000_000, 0, 0),
        Used("left", 2, 5, 5, 9, 1),
    ]
    diff = compare(before, after, TARGETS, used)

    assert {each.target: each.would_microusd for each in diff.effects} == {
        "claude": 2_100,
        "house": 2_000_000,  # it cost nothing: only the new price says anything
    }
    assert (diff.paid_microusd, diff.would_microusd) == (700, 2_002_100)
    assert [(each.target, each.model) for each in diff.unpriced] == [("left", "")]


def test_a_target_that_loses_its_price_is_named_and_has_no_cost() -> None:
    before = Catalogue({MODEL: ENTRY, "in-house": HOUSE})
    diff = compare(
        before, Catalogue({"in-house": HOUSE}), TARGETS, [Used("claude", 1, 10, 10, 5, 0)]
    )

    assert diff.unserved == ("claude",)
    assert diff.effects[0].would_microusd is None
    assert diff.would_microusd == 5


def test_usage_that_cost_nothing_is_told_where_the_other_file_has_a_price_for_it() -> None:
    free = structs.replace(ENTRY, input_microusd_per_mtok=0, output_microusd_per_mtok=0)
    used = [Used("claude", 3, 10, 10, 0, 3), Used("house", 2, 10, 10, 0, 2)]
    both = Catalogue({MODEL: free, "in-house": HOUSE})
    diff = compare(both, Catalogue({MODEL: ENTRY, "in-house": HOUSE}), TARGETS, used)

    assert [(each.target, each.is_priced_after) for each in diff.unpriced] == [("claude", True)]
    assert compare(both, both, TARGETS, used).unpriced == ()


async def test_an_own_file_is_compared_with_what_this_release_says(
    listener: Listener, browser: Browser
) -> None:
    key = await seeding.issue(listener, "payroll")
    await listener.record(*seeding.requests(listener, key, 60))
    await browser.sign_in()
    _, page = await browser.send("GET", AT)
    assert "1 model is priced by own.toml" in text_of(page)
    answer, page = await browser.send("GET", f"{AT}?with=shipped")
    assert answer.status == 200
    said = text_of(page)
    assert "1 model changes." in said
    assert re.search(r"output \$[\d.]+ \$[\d.]+ -50%", said)
    assert re.search(r"The last 30 days cost \$\d+\.\d\d and would have cost \$\d+\.\d\d", said)
    assert re.search(r"\$[\d.]+ less\.", said)
    assert "claude" in said
    assert "An estimate" in said
    assert "Keep this file" not in page


async def test_a_pasted_file_is_compared_as_it_would_be_in_force_and_changes_nothing(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    before = (listener.folder / "own.toml").read_bytes()
    text = file_of(input_microusd_per_mtok=7_654_321)
    answer, page = await browser.send("POST", AT, {"text": text})
    assert answer.status == 200
    said = text_of(page)
    assert "$7.65" in said
    assert "Keep this file" in said
    assert (listener.folder / "own.toml").read_bytes() == before
    assert [each.action for each in await deeds(listener)] == ["session.began"]


async def test_a_change_of_one_price_begins_with_its_entry_and_all_that_is_in_force(
    listener: Listener, browser: Browser
) -> None:
    """An entry alone, put in force, would have taken the prices of all others back."""
    await browser.sign_in()
    own = (listener.folder / "own.toml").read_text()
    other = "claude-haiku-4-5"
    given = {}
    for model in (MODEL, other):
        answer, page = await browser.send("GET", f"{AT}?model={model}")
        assert answer.status == 200
        given[model] = html.unescape(
            re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)[0]
        )
        assert f"<option selected>{model}</option>" in page
    assert given[MODEL].strip() == own.strip()
    assert given[other].startswith(own.rstrip() + "\n\n[models.")
    assert load_catalogue(given[other], "t").models == {
        MODEL: load_catalogue(own, "t").models[MODEL],
        other: shipped_catalogue().models[other],
    }
    price = shipped_catalogue().models[other].input_microusd_per_mtok
    assert price != 7_654_321
    dearer = re.sub(
        r"input_microusd_per_mtok = [0-9_]+(?!.*input_microusd)",
        "input_microusd_per_mtok = 7_654_321",
        given[other],
        flags=re.DOTALL,
    )
    _, page = await browser.send("POST", AT, {"text": dearer})
    assert "1 model changes." in text_of(page)
    answer, page = await browser.send("GET", f"{AT}?model=<b>nobody")
    assert answer.status == 400
    assert "there is no entry of &#39;&lt;b&gt;nobody&#39;" in page


def test_every_shipped_entry_is_found_whole_and_alone() -> None:
    for model, entry in shipped_catalogue().models.items():
        text = entry_in(shipped_text(), model)
        assert load_catalogue(text, "t").models == {model: entry}
        assert "#" not in text.splitlines()[-1]
    with pytest.raises(RequestInvalid):
        entry_in(shipped_text(), "gpt")
    assert begun_with(MODEL, "", shipped_text()).text == entry_in(shipped_text(), MODEL)


async def test_a_picked_file_goes_before_the_text_and_its_name_is_only_shown(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("file", file_of(input_microusd_per_mtok=1), filename="<img src=x>.toml")
    form.add_field("text", "not this")
    headers = {"origin": listener.url, CSRF_HEADER: csrf_of(browser.session_id)}
    cookie = {"gatewright_admin": browser.session_id}
    async with (
        aiohttp.ClientSession(cookies=cookie) as session,
        session.post(f"{listener.url}{AT}", data=form, headers=headers) as answer,
    ):
        page = await answer.text()
        assert answer.status == 200
    assert "With &lt;img src=x&gt;.toml" in page
    assert "<img src=x>" not in page
    binary = aiohttp.FormData()
    binary.add_field("file", b"\xff\xfe", filename="a.toml")
    async with (
        aiohttp.ClientSession(cookies=cookie) as session,
        session.post(f"{listener.url}{AT}", data=binary, headers=headers) as answer,
    ):
        assert answer.status == 400
        assert "no UTF-8 text" in await answer.text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing in it"),
        ("[models", "not valid TOML"),
        ('[models."x"]\nvendor = "me"\n', "missing required field"),
        (file_of(input_microusd_per_mtok=-1), "is negative"),
        (file_of(input_microusd_per_mtok=10**13), "too large"),
        ("a = " + "9" * 5_000, "not valid TOML"),
        ("a = " + "[" * 5_000, "not valid TOML"),
        (file_of(capabilities=["<script>alert(1)</script>"]), "there is no capability"),
    ],
)
async def test_a_file_with_an_error_is_refused_with_the_place_and_the_text_kept(
    browser: Browser, text: str, said: str
) -> None:
    await browser.sign_in()
    answer, page = await browser.send("POST", AT, {"text": text})
    assert answer.status == 400
    assert said in page
    assert "<script>alert" not in page
    if text and len(text) < 100:
        assert text.strip().splitlines()[0].replace('"', "&#34;") in page


async def test_the_json_api_compares_the_same(browser: Browser) -> None:
    await browser.sign_in()
    body = json.dumps({"text": file_of(input_microusd_per_mtok=1)})
    answer, text = await browser.send("POST", "/api/prices/compared", body=body)
    assert answer.status == 200
    (change,) = json.loads(text)["changes"]
    assert (change["model"], change["targets"]) == (MODEL, ["claude"])
    wrong, _ = await browser.send("POST", "/api/prices/compared", body='{"text": "["}')
    assert wrong.status == 400
    _, now = await browser.send("GET", "/api/prices")
    assert json.loads(now)["own"] == [MODEL]


async def test_a_file_in_force_that_cannot_be_read_is_said_and_compared_with_nothing(
    listener: Listener, browser: Browser
) -> None:
    (listener.folder / "own.toml").write_text("[broken")
    await browser.sign_in()
    answer, page = await browser.send("GET", AT)
    assert answer.status == 200
    assert "The prices in force cannot be read" in page
    assert (await browser.send("GET", f"{AT}?with=shipped"))[0].status == 400


async def test_a_file_is_picked_and_compared_in_a_browser(
    listener: Listener, tmp_path: Path
) -> None:
    await seeding.person(listener, "ann", "viewer")
    path = tmp_path / "next.toml"
    path.write_text(file_of(input_microusd_per_mtok=1_234_000))
    async with window(listener) as seen:
        await seen.sign_in("ann", seeding.PASSWORD)
        await seen.open(AT)
        await seen.page.set_input_files("#field-file", path)
        await seen.page.get_by_role("button", name="Compare", exact=True).click()
        await seen.page.get_by_role("heading", name="With next.toml").wait_for()
        assert await seen.violations() == []
        assert seen.problems == []

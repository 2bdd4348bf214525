"""The diagnostics bundle: whole, bounded, on record, without a secret or a word of a user."""

import io
import secrets
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from admin.access import CSRF_HEADER, csrf_of
from admin.system.bundle import PART_BYTES_MAX, Part, Scrubber, archived, written
from admin.system.diagnostics import known_secrets
from gateway.audit.projecting.export import segment_rows
from gateway.configuration.reading import parse_settings
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio
FILES = {
    *("versions", "settings", "checks", "migrations", "workers", "breakers", "metrics"),
    *("figures", "sinks", "unended"),
}
CANARIES = {
    name: f"c4n4ry-{name}-{secrets.token_hex(8)}"
    for name in ("provider", "oidc", "sink", "alerts", "path", "user", "prompt", "answer", "key")
}
MORE = f"""
[alerts]
url = "https://{CANARIES["user"]}@hooks.example/{CANARIES["path"]}?x={CANARIES["path"]}"
credential = {{ file = "var/alerts.key" }}
[oidc]
issuer = "https://login.example/realm"
client_id = "gatewright"
client_secret = {{ file = "var/oidc.key" }}
[sinks.siem]
kind = "http"
url = "https://siem.example/{CANARIES["path"]}"
credential = {{ file = "var/sink.key" }}
"""


@pytest.fixture
async def guarded(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Listener]:
    """A listener with a canary as every secret."""
    monkeypatch.setenv("GATEWRIGHT_TEST_ABSENT_KEY", CANARIES["provider"])
    folder = tmp_path / "var"
    folder.mkdir()
    for name in ("alerts", "oidc", "sink"):
        file = folder / f"{name}.key"
        file.touch(mode=0o600)
        file.write_text(CANARIES[name])
    async with Listener(tmp_path, sqlite_url, MORE) as listener:
        yield listener


async def fetched(listener: Listener, browser: Browser) -> tuple[int, str, bytes]:
    """Status, type and bytes of a bundle that is asked for as the page's form asks."""
    cookies = {"gatewright_admin": browser.session_id}
    headers = {"origin": listener.url, CSRF_HEADER: csrf_of(browser.session_id)}
    async with (
        aiohttp.ClientSession(cookies=cookies) as http,
        http.post(f"{listener.url}/system/diagnostics", headers=headers) as answer,
    ):
        return answer.status, answer.content_type, await answer.read()


def opened(raw: bytes) -> dict[str, Any]:
    """The bundle's files by name, decoded."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[Path(member.name).stem] = msgspec.json.decode(file.read())
    return found


async def test_a_bundle_holds_how_everything_is(listener: Listener, browser: Browser) -> None:
    key = await seeding.issue(listener, "assistant")
    await listener.record(*seeding.requests(listener, key, 40, over_us=seeding.DAY_US))
    await seeding.report(listener, seeding.worker(listener, "w0", breakers={"claude": "open"}))
    await browser.sign_in()
    await browser.send("GET", "/")  # adds the records up
    status, kind, raw = await fetched(listener, browser)
    found = opened(raw)

    assert (status, kind, set(found)) == (200, "application/gzip", FILES)
    assert found["versions"]["packages"]["gatewright"]
    assert found["settings"]["in_force"]["targets"]["house"]["provider"] == "engine"
    assert found["breakers"] == {"claude": {"w0": "open"}}
    assert found["metrics"]["w0"]["gatewright_requests_total"] == 1_204.0
    assert sum(each["requests"] for each in found["figures"]) == 40
    assert found["workers"]["lines"][0]["report"]["members"][0]["blocks_total"] == 1_024
    assert found["migrations"]["schema"] == found["migrations"]["newest"]
    assert "problem" not in str([each.keys() for each in found.values() if isinstance(each, dict)])


async def test_no_secret_no_key_and_nothing_that_was_said_is_in_a_bundle(
    guarded: Listener,
) -> None:
    own = {name: guarded.folder.joinpath("var", name) for name in ("pepper.key", "master.key")}
    planted = set(CANARIES.values()) | {path.read_text().strip() for path in own.values()}
    planted |= {guarded.token}
    key = await seeding.issue(guarded, CANARIES["key"])
    (sealed,) = seeding.requests(guarded, key, 1, model_requested=CANARIES["prompt"])
    await guarded.record(msgspec.structs.replace(sealed, detail={"said": CANARIES["answer"]}))
    # A part that leaked what it must not: the last look finds what others overlooked.
    leaks = {"claude": f"refused {CANARIES['provider']}", "house": f"Bearer {guarded.token}"}
    issued = f"gw_live_{key}_{secrets.token_urlsafe(24)}"
    leaking = seeding.worker(guarded, unavailable=leaks, problems=(f"a key: {issued}",))
    await seeding.report(guarded, leaking)
    async with browsing(guarded) as browser:
        await browser.sign_in()
        session = browser.session_id
        status, _, raw = await fetched(guarded, browser)
    text = msgspec.json.encode(opened(raw)).decode()

    assert status == 200
    assert len(planted) == len(CANARIES) + 3
    assert [each for each in (*planted, session, issued, key) if each in text] == []
    assert text.count("[removed]") >= 3, "what leaked was found and taken out"


async def test_making_a_bundle_is_on_record_and_takes_who_configures_the_system(
    listener: Listener, browser: Browser
) -> None:
    await seeding.person(listener, "otto", "viewer")
    await seeding.person(listener, "paul", "platform_admin", "acme")
    for name in ("otto", "paul"):
        await browser.sign_in_as(name, seeding.PASSWORD)
        assert (await browser.send("GET", "/system/diagnostics"))[0].status == 403
        assert (await fetched(listener, browser))[0] == 403
    await seeding.person(listener, "mira", "platform_admin")
    await browser.sign_in_as("mira", seeding.PASSWORD)
    assert (await fetched(listener, browser))[0] == 200
    folder = listener.settings.path(listener.settings.audit.directory)
    records = [row.projected.record async for row in segment_rows(folder)]

    assert [(each.action, each.actor) for each in records[-1:]] == [("diagnostics.made", "mira")]
    assert "figures" in records[-1].detail["after"]


async def test_a_part_that_cannot_be_gathered_says_why_and_the_others_are_there(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    async with listener.database() as database, database.writing() as connection:
        await connection.exec_driver_sql("DROP TABLE workers")
    _, page = await browser.send("GET", "/system/diagnostics")
    found = opened((await fetched(listener, browser))[2])

    assert "4 of 10 parts cannot be gathered now" in page
    assert found["workers"] == {"problem": "the database does not answer"}
    assert found["versions"]["python"]


def test_a_part_that_is_too_long_is_left_out_and_says_so() -> None:
    long = Part("long", "", "x" * PART_BYTES_MAX)
    raw = b"".join(archived([long, Part("short", "", [1])], Scrubber([]), 0))

    assert opened(raw)["short"] == [1]
    assert "left out" in opened(raw)["long"]["problem"]
    assert len(raw) < 10_000


def test_secrets_are_found_also_as_json_writes_them_and_short_ones_are_left() -> None:
    scrubber = Scrubber(['quo"ted\\secret', "abcdef", "ab", ""])
    raw = written(Part("x", "", {"a": 'is quo"ted\\secret', "b": "abcdefg", "c": "ab"}), scrubber)

    assert msgspec.json.decode(raw) == {"a": "is [removed]", "b": "[removed]g", "c": "ab"}


async def test_each_of_two_signing_keys_is_a_secret_that_no_bundle_holds(tmp_path: Path) -> None:
    keys = [f"whsec_{secrets.token_hex(16)}" for _ in range(2)]
    for name in ("alerts", "sink"):
        file = tmp_path / f"{name}.key"
        file.touch(mode=0o600)
        file.write_text(" ".join(keys) if name == "alerts" else keys[0][::-1])
    text = """
[alerts]
url = "https://hooks.example/in"
signing_key = { file = "alerts.key" }
[sinks.siem]
kind = "http"
url = "https://siem.example/in"
signing_key = { file = "sink.key" }
"""
    known = [*known_secrets(parse_settings(text, "gatewright.toml", tmp_path, {}))]

    assert {*keys, keys[0][::-1]} < {*known}
    raw = written(Part("x", "", {key: f"said {key}" for key in keys}), Scrubber(known))
    assert not any(key.encode() in raw for key in keys)


async def test_headers_of_vendors_and_words_for_proxies_are_secrets_that_no_bundle_holds(
    tmp_path: Path,
) -> None:
    words = {name: secrets.token_hex(16) for name in ("vendor", "proxy", "push", "upstream")}
    for name, word in words.items():
        file = tmp_path / f"{name}.key"
        file.touch(mode=0o600)
        file.write_text(word)
    text = """
[sinks.vendor]
kind = "otlp"
url = "https://otlp.vendor.example/v1/traces"
headers = { api-key = { file = "vendor.key" } }
proxy = "http://proxy.example:3128"
proxy_credential = { file = "proxy.key" }
[metrics]
url = "https://otlp.vendor.example/v1/metrics"
headers = { api-key = { file = "push.key" } }
[providers.far]
kind = "openai"
base_url = "https://api.vendor.example/v1"
jurisdiction = "us"
proxy = "http://proxy.example:3128"
proxy_credential = { file = "upstream.key" }
"""
    known = {*known_secrets(parse_settings(text, "gatewright.toml", tmp_path, {}))}

    assert {*words.values()} <= known

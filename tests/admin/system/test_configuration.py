"""Configuration: start checks made again, settings without secrets, schema, sign-in, features."""

import base64
import secrets
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from admin.system.checks import start_checks
from admin.system.configuration import features_of, setting_lines
from gateway.clock import SystemClock
from gateway.configuration.reading import parse_settings
from gateway.secrets.credentials import master_key
from gateway.secrets.secret import Secret
from gateway.store.schema.version import newest_schema
from gateway.store.sealing.keys_in_use import keys_in_use
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio
CANARY = "c4n4ry-5ecret"
MORE = f"""
[alerts]
url = "https://hooks.example/{CANARY}?key={CANARY}"
[oidc]
issuer = "https://login.example/realm/{CANARY}"
client_id = "gatewright"
[sinks.siem]
kind = "http"
url = "https://siem.example/{CANARY}"
"""


async def checks(listener: Listener) -> dict[str, tuple[str, str]]:
    async with listener.database() as database:
        found = await start_checks(listener.settings, database)
    return {each.name: (each.outcome, each.said) for each in found}


async def told(browser: Browser) -> Any:
    answer, text = await browser.send("GET", "/api/system/configuration")
    assert answer.status == 200, text
    return msgspec.json.decode(text)


async def test_a_sound_installation_would_start_again(listener: Listener) -> None:
    found = await checks(listener)

    assert {name for name, (outcome, _) in found.items() if outcome == "refused"} == set()
    assert found["Credential of managed"][0] == "warn", "its variable is not set"
    assert found["Schema of the database"][0] == "good"


async def test_a_file_that_changed_since_the_start_is_named_with_its_keys(
    listener: Listener,
) -> None:
    text = listener.config_file.read_text()
    listener.config_file.write_text(f"{text}\n[responses]\nkeep_days = 7\n")
    outcome, said = (await checks(listener))["Configuration file"]

    assert (outcome, said) == ("warn", "changed since this process started: responses.keep_days")


@pytest.mark.parametrize(
    ("name", "break_it"),
    [
        ("Configuration file", lambda it: it.config_file.write_text("no toml at all")),
        ("Configuration file", lambda it: it.config_file.unlink()),
        ("Pepper of virtual keys", lambda it: _overwrite(it, "pepper.key", "short")),
        ("Master key", lambda it: _overwrite(it, "master.key", "not base64!")),
        ("Keys of the database", lambda it: _overwrite(it, "master.key", _another_key())),
        ("Keys of the database", lambda it: _overwrite(it, "pepper.key", _another_key())),
        ("Admin token", lambda it: _overwrite(it, "admin.token", "changeme-changeme-changeme")),
        ("Audit folder", lambda it: _put_file_in_place_of(it.folder / "var" / "audit")),
    ],
)
async def test_what_would_refuse_the_next_start_is_said_before_it(
    listener: Listener, name: str, break_it: Any
) -> None:
    break_it(listener)
    outcome, said = (await checks(listener))[name]

    assert outcome == "refused"
    assert said
    assert "changeme" not in said


async def test_a_vendor_s_header_that_cannot_be_read_is_said_before_it(listener: Listener) -> None:
    file = listener.folder / "var" / "vendor.key"
    text = """
[sinks.vendor]
kind = "otlp"
url = "https://otlp.vendor.example/v1/traces"
headers = { api-key = { file = "var/vendor.key" } }
"""
    sinks = parse_settings(text, "gatewright.toml", listener.folder, {}).sinks
    settings = structs.replace(listener.settings, sinks=sinks)
    outcomes = []
    for _ in range(2):
        async with listener.database() as database:
            (found,) = [
                each
                for each in await start_checks(settings, database)
                if each.name == "Headers of sinks.vendor"
            ]
        outcomes.append(found.outcome)
        file.touch(mode=0o600)
        file.write_text(CANARY)
        assert CANARY not in found.said

    assert outcomes == ["refused", "good"]


def _another_key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _overwrite(listener: Listener, name: str, text: str) -> None:
    path = listener.folder / "var" / name
    path.chmod(0o600)
    path.write_text(text)


def _put_file_in_place_of(folder: Path) -> None:
    """Without anything in its place, the log of the running listener would make it anew."""
    folder.rename(folder.with_name("gone"))
    folder.write_text("")


async def test_an_older_schema_would_refuse_the_start_and_says_what_to_run(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    async with listener.database() as database, database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0021'")
    found = await told(browser)
    _, page = await browser.send("GET", "/system/configuration")

    assert (found["schema"], found["schema_newest"]) == ("0021", newest_schema())
    (schema,) = [each for each in found["checks"] if each["name"] == "Schema of the database"]
    assert schema["outcome"] == "refused"
    assert "would refuse the next start" in page
    assert "gatewright database migrate" in page


async def test_a_newer_schema_that_permits_this_program_asks_for_its_upgrade_and_no_migration(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    async with listener.database() as database, database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    found = await told(browser)
    _, page = await browser.send("GET", "/system/configuration")

    (schema,) = [each for each in found["checks"] if each["name"] == "Schema of the database"]
    assert (schema["outcome"], found["schema"]) == ("warn", "9999")
    assert "upgrade this process" in page
    assert "gatewright database migrate" not in page
    assert "would refuse the next start" not in page


async def test_nothing_secret_is_shown_and_of_sign_in_the_host_only(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with Listener(tmp_path, sqlite_url, MORE) as listener, browsing(listener) as browser:
        await browser.sign_in()
        _, page = await browser.send("GET", "/system/configuration")
        found = await told(browser)
        own = [listener.token, listener.folder.joinpath("var", "pepper.key").read_text().strip()]

    for secret in (*own, CANARY):
        assert secret not in page + str(found)
    told_apart = {line["key"]: line["value"] for line in found["settings"]}
    assert told_apart["alerts.url"] == "https://hooks.example/…?…"
    assert told_apart["sinks.siem.url"] == "https://siem.example/…"
    assert found["sign_in"] == {"openid_host": "login.example", "is_public_client": True}
    assert "login.example" in page


def test_settings_say_whether_they_are_as_they_come() -> None:
    text = '[limits]\nmessages_max = 5\n[providers."a.b"]\nkind = "engine"\njurisdiction = "x"\n'
    lines = {
        line.key: line for line in setting_lines(parse_settings(text, "g.toml", Path("/srv"), {}))
    }

    assert {key for key, line in lines.items() if not line.is_default} == {
        *("limits.messages_max", "providers.a.b.kind", "providers.a.b.jurisdiction")
    }
    assert lines["providers.a.b.connect_timeout_s"].is_default


def test_features_follow_the_settings() -> None:
    plain = {each.name: each.is_on for each in features_of(parse_settings("", "g", Path("/"), {}))}
    text = '[database]\nurl = "postgresql+asyncpg://db/g"\n[responses]\nkeep_days = 0\n'
    other = {
        each.name: each.is_on for each in features_of(parse_settings(text, "g", Path("/"), {}))
    }

    assert (plain["Second audit device"], other["Second audit device"]) == (False, True)
    assert (plain["Kept answers"], other["Kept answers"]) == (True, False)
    assert not plain["Sinks"]


async def test_the_configuration_is_for_who_may_read_the_system_everywhere(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("one")
    await seeding.person(listener, "olga", "viewer", "acme")
    await browser.sign_in_as("olga", seeding.PASSWORD)

    assert (await browser.send("GET", "/system/configuration"))[0].status == 403
    assert (await browser.send("GET", "/api/system/configuration"))[0].status == 403


async def test_what_hangs_on_which_key_is_counted_as_the_command_counts_it(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    for name in ("one", "two"):
        await seeding.issue(listener, name)
    async with listener.database() as database:
        table = SealedSecretTable(database, master_key(listener.settings), listener.clock)
        await table.seal("managed", Secret(secrets.token_hex()), "ann")
        counted = await keys_in_use(listener.settings, database, SystemClock())
    found = await told(browser)
    _, page = await browser.send("GET", "/system/configuration")

    assert found["keys"] == msgspec.to_builtins(counted)
    (present, pepper) = found["keys"]
    assert present["setting"] == "secrets.master_key"
    assert present["hanging"]["secrets"] == 1
    assert (pepper["name"], pepper["hanging"]["live virtual keys"]) == ("1", 2)
    assert f"Master key <code>{present['name']}</code>" in page
    assert "live virtual keys: 2" in page


async def test_keys_that_cannot_be_counted_are_said_and_cost_no_page(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    _overwrite(listener, "master.key", "not base64!")
    found = await told(browser)
    answer, page = await browser.send("GET", "/system/configuration")

    assert answer.status == 200
    assert (found["keys"], "master_key" in found["keys_problem"]) == ([], True)
    assert "not counted" in page

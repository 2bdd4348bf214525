"""`gatewright config check` and what stops a start: the file, the key and the reason, in a line."""

import base64
import re
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.certificates import HOUR, Authority
from tests.cli.operator import Operator


PLACE = ("--organisation", "acme", "--workspace", "main", "--project", "web")
ISSUE = ("keys", "issue", *PLACE, "--name", "n")


@pytest.fixture(autouse=True)
def _no_provider_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_a_fresh_configuration_passes_and_names_what_would_be_served(operator: Operator) -> None:
    ended = operator.config("config", "check")

    assert ended.status == 0
    assert "policy: default (" in ended.output
    assert "gatewright-demo: cheap, in-house, configured" in ended.output
    assert "claude-opus-5-5: frontier, us, unavailable: no credential" in ended.output


def test_a_credential_in_the_environment_makes_a_target_available(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    ended = operator.config("config", "check")

    assert "claude-opus-5-5: frontier, us, configured" in ended.output
    assert "not-a-real-key" not in ended.output


def test_a_credential_that_only_a_worker_asks_for_is_not_said_to_be_missing(
    operator: Operator,
) -> None:
    text, kept = operator.config_file.read_text(), '{ env = "ANTHROPIC_API_KEY" }'
    assert kept in text
    operator.config_file.write_text(text.replace(kept, '{ db = "upstream" }'))
    ended = operator.config("config", "check")

    assert "claude-opus-5-5: frontier, us, configured" in ended.output
    assert "gpt-6.2-sol: mid, us, unavailable: no credential" in ended.output


def test_a_vendors_kind_that_names_no_credential_is_not_said_to_be_ready(
    operator: Operator,
) -> None:
    text, kept = operator.config_file.read_text(), 'credential = { env = "ANTHROPIC_API_KEY" }\n'
    assert kept in text
    operator.config_file.write_text(text.replace(kept, ""))
    ended = operator.config("config", "check")

    assert (
        "claude-opus-5-5: frontier, us, unavailable: no credential, the settings name none"
        in ended.output
    )
    assert "gatewright-demo: cheap, in-house, configured" in ended.output


def test_until_when_each_certificate_and_list_is_good_is_said(operator: Operator) -> None:
    own, teams = Authority(operator.folder), Authority(operator.folder, "teams")
    short = own.issue("short", begins=HOUR * -9, ends=HOUR)
    lists = operator.folder / "lists.pem"
    lists.write_bytes(teams.revoke(made=HOUR * -1, ends=HOUR * 12))
    operator.config_file.write_text(
        f"[data_plane]\n{own.issue(ends=HOUR * 24).settings(teams.file, lists)}"
        "[providers.p]\nkind = 'openai'\njurisdiction = 'us'\n"
        f"ca_file = '{Authority(operator.folder, 'old', ends=HOUR / -2).file}'\n"
        f"client_certificate = '{short.chain}'\nclient_key = '{short.key}'\n"
        "[sinks.s]\nkind = 'otlp'\nurl = 'https://collector.example/v1/traces'\n"
        f"client_certificate = '{short.chain}'\nclient_key = '{short.key}'\n"
        f"[alerts]\nurl = 'https://alerts.example'\nca_file = '{own.file}'\n"
    )
    ended = operator.config("config", "check")

    assert ended.status == 0
    moment = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"
    for line in (
        rf"data_plane\.tls_certificate_file: good until {moment}",
        rf"data_plane\.tls_client_ca_file: good until {moment}",
        rf"data_plane\.tls_client_crl_file: good until {moment}",
        rf"providers\.p\.ca_file: has ended at {moment}: renew it",
        rf"providers\.p\.client_certificate: good until {moment}: renew it",
        rf"sinks\.s\.client_certificate: good until {moment}: renew it",
        rf"alerts\.ca_file: good until {moment}",
    ):
        assert re.search(f"^{line}$", ended.output, re.MULTILINE), line


@pytest.mark.parametrize("section", ["sinks.s", "metrics", "alerts"])
@pytest.mark.parametrize("named", ["headers.api-key = { file = 'none' }", "ca_file = 'none'"])
def test_a_place_outside_that_no_worker_could_reach_is_found(
    operator: Operator, section: str, named: str
) -> None:
    kind = "kind = 'otlp'\n" if section == "sinks.s" else ""
    text = f"[{section}]\n{kind}url = 'https://collector.example/v1'\n{named}\n"
    operator.config_file.write_text(text)
    ended = operator.config("config", "check")

    assert ended.status != 0
    assert f"{section}.{named.partition(' ')[0]}" in ended.errors


MISTYPED = """
[providers.house]
kind = "scripted"
jurisdiction = "us"
[targets.a]
provider = "hose"
model = "c"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data_plane]\nprot = 1\n", "prot"),
        ("[data_plane]\nport = '1'\n", "data_plane.port"),
        ("[data_plane]\nport = 70000\n", "data_plane.port: must be between 0 and 65535"),
        ("[data_plane]\nport = 9\nprobe_port = 9\n", "probe_port: is the listener's own port"),
        ("[admin]\nprobe_port = -1\n", "admin.probe_port: must be between 0 and 65535"),
        (
            "[audit]\ncheckpoint_period_s = 61.0\n",
            "audit.checkpoint_period_s: must be between 1 and 50: a log is signed each minute",
        ),
        ("[limits]\nbody_bytes_max = 0\n", "limits.body_bytes_max: must be greater than zero"),
        ("[database]\nurl = 'mysql://x'\n", "database.url: must start with"),
        ("[targets.a]\nprovider = 'b'\nmodel = 'c'\n", "targets.a.provider: there is no provider"),
        ("[providers.a]\nkind = 'b'\njurisdiction = 'us'\n", "providers.a.kind: must be one of"),
        (
            "[providers.a]\nkind = 'ollama'\njurisdiction = 'here'\n",
            'in the house is kind = "engine" with engine = "ollama"',
        ),
        (
            "[providers.a]\nkind = 'azure'\njurisdiction = 'us'\n",
            'speaks OpenAI\'s API is "openai_compatible"',
        ),
        (
            MISTYPED,
            "there is no provider `hose`; did you mean `house`?",
        ),
        (
            "[providers.a]\nkind = 'engine'\njurisdiction = 'x'\nbase_url = 'ftp://x'\n",
            "gatewright.toml: providers.a.base_url: must be https://host",
        ),
        (
            "[providers.a]\nkind = 'openai'\njurisdiction = 'us'\npriorities = true\n",
            "gatewright.toml: providers.a.priorities: says nothing of a provider of kind openai",
        ),
        ("[policy]\nfile = 'none.toml'\n", "none.toml: No such file or directory"),
        ("[policy]\nfile = 'none.toml'\n", "gatewright.toml: policy.file: cannot be read: /"),
        (
            "[admin]\ntls_certificate_file = 'a.crt'\ntls_key_file = 'a.key'\n",
            "a.crt: admin.tls_certificate_file: cannot be read (No such file or directory)",
        ),
        ("source = 'x'\n", "source: is not a setting"),
        ("][", "not valid TOML"),
    ],
)
def test_a_wrong_key_is_named_with_file_key_and_reason(
    newcomer: Operator, text: str, words: str
) -> None:
    newcomer.config_file.write_text(text)
    ended = newcomer.config("config", "check")

    assert ended.status == 2
    assert words in ended.errors
    assert ended.errors.startswith("gatewright: ")
    assert len(ended.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (
            "colour = 1\n[[constraints]]\nname = 'a'\n",
            [
                "error: line 4, column 1: constraints[0] (rule 'a'): the constraint has no effect",
                "error: line 3, column 1: colour: unknown key 'colour'",
            ],
        ),
        (
            "[[tests]]\nname = 'a'\nfacts = {}\nexpect = { effect = 'deny' }\n",
            ["FAIL  a (line 3, column 1): effect: expected deny, got allow"],
        ),
    ],
)
def test_a_wrong_policy_is_named_once_in_each_line_and_nothing_else_is_said(
    newcomer: Operator, policy: str, expected: list[str]
) -> None:
    newcomer.config_file.write_text('[policy]\nfile = "policy.toml"\n')
    (newcomer.folder / "policy.toml").write_text(f"name = 'x'\nversion = 1\n{policy}")
    ended = newcomer.config("config", "check")

    assert ended.status == 2
    lines = ended.errors.removeprefix("gatewright: ").splitlines()
    assert lines == [f"policy.toml: {each}" for each in expected]


@pytest.mark.parametrize(
    ("variable", "key"),
    [("GATEWRIGHT_DATA_PLANE__PORT", "data_plane.port"), ("GATEWRIGHT_LOG_LEVEL", "log_level")],
)
def test_a_wrong_variable_is_named(
    newcomer: Operator, monkeypatch: pytest.MonkeyPatch, variable: str, key: str
) -> None:
    newcomer.config_file.touch()
    monkeypatch.setenv(variable, "many")
    ended = newcomer.config("config", "check")

    assert ended.status == 2
    assert ended.errors.startswith(f"gatewright: {variable}: {key}: ")


def test_a_key_file_that_others_can_read_stops_the_start(operator: Operator) -> None:
    (operator.folder / "var" / "pepper.key").chmod(0o644)
    ended = operator.config(*ISSUE)

    assert ended.status == 2
    assert "can be read by others (mode 0644); make it 0600" in ended.errors


@pytest.mark.parametrize("name", ["pepper.key", "master.key", "admin.token"])
@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        (None, 0o600, "cannot be read"),
        ("abc", 0o600, "must "),
        ("abc", 0o644, "can be read by others (mode 0644); make it 0600"),
    ],
)
def test_a_check_looks_at_the_keys_that_a_start_needs(
    operator: Operator, name: str, text: str | None, mode: int, words: str
) -> None:
    file = operator.folder / "var" / name
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
        file.chmod(mode)
    ended = operator.config("config", "check")

    assert ended.status == 2
    assert f"secrets.{name.replace('.', '_').replace('pepper_key', 'pepper')}: " in ended.errors
    assert words in ended.errors
    assert len(ended.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[sinks.siem]\nkind = 'syslog'\n", "gatewright.toml: sinks.siem.url: is missing"),
        ("[alerts]\nurl = 'http://hook.example/x'\n", "alerts.url: is plain http beyond loopback"),
        ("[metrics]\nurl = 'http://otel.example/v1/metrics'\n", "metrics.url: is plain http"),
        ("[metrics]\nurl = 'https://169.254.169.254/v1/metrics'\n", "metrics.url: "),
        ("[inspection]\nability_file = 'none.json'\n", "ability_file: not a model's abilities"),
        (
            "[oidc]\nissuer = 'http://idp.example'\nclient_id = 'x'\n",
            "gatewright.toml: oidc.issuer: must be https beyond this machine",
        ),
    ],
)
def test_a_check_builds_what_a_start_would_stop_at(
    operator: Operator, text: str, words: str
) -> None:
    with operator.config_file.open("a") as file:
        file.write(text)
    ended = operator.config("config", "check")

    assert ended.status == 2
    assert words in ended.errors
    assert len(ended.errors.splitlines()) == 1


def _change(operator: Operator, statement: str) -> None:
    with closing(sqlite3.connect(operator.folder / "var" / "gatewright.db")) as database, database:
        database.execute(statement)


def _tables(operator: Operator) -> str:
    with closing(sqlite3.connect(operator.folder / "var" / "gatewright.db")) as database:
        return "\n".join(database.iterdump())


def test_a_check_keeps_nothing_of_the_first_keys_it_sees(operator: Operator) -> None:
    before = _tables(operator)
    assert operator.config("config", "check").status == 0
    assert _tables(operator) == before
    assert not operator.folder.joinpath("var", "audit").exists()


@pytest.mark.parametrize("name", ["master", "pepper"])
def test_a_check_finds_a_key_that_is_not_the_databases_own_unless_it_is_offline(
    operator: Operator, name: str
) -> None:
    assert operator.config(*ISSUE).status == 0
    assert operator.config("config", "check").status == 0
    file = operator.folder / "var" / f"{name}.key"
    file.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
    ended = operator.config("config", "check")
    assert (ended.status, ended.output) == (2, "")
    assert f": {file} is key " in ended.errors
    assert operator.config("config", "check", "--offline").status == 0


def test_a_check_finds_a_first_key_that_opens_nothing(operator: Operator) -> None:
    assert operator.config("secrets", "list").status == 0
    _change(
        operator,
        "INSERT INTO sealed_secrets VALUES ('up', 1, 'another', x'00', x'00', 1, 'ann', '')",
    )
    _change(operator, "DELETE FROM key_checks")
    ended = operator.config("config", "check")
    assert (ended.status, ended.output) == (2, "")
    assert "master.key opens nothing of what lies sealed" in ended.errors


def _old(operator: Operator) -> None:
    _change(operator, "UPDATE alembic_version SET version_num = '0001'")


def _gone(operator: Operator) -> None:
    operator.folder.joinpath("var", "gatewright.db").unlink()


def _none(operator: Operator) -> None:
    operator.folder.joinpath("var", "gatewright.db").write_text("none, but long enough " * 50)


def _short(operator: Operator) -> None:
    _change(operator, "INSERT INTO audit_positions VALUES ('w0', 2, 500)")


def _short_of_pages(operator: Operator) -> None:
    _change(operator, "INSERT INTO audit_positions VALUES ('w0-admin', 1, 70)")


def _broken_prices(operator: Operator) -> None:
    """What people put in force cannot be read."""
    _change(operator, "INSERT INTO price_files VALUES (1, 'broken', 'd', '][', 'ann', 1)")
    _change(operator, "INSERT INTO price_orders VALUES (1, 1, 'ann', 'because', 1)")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_old, "the database has schema 0001, this program needs "),
        (_gone, "the database has no schema yet: run `gatewright database migrate`"),
        (_none, "file is not a database"),
        (_broken_prices, "price file 1 (broken)"),
        (_short, "audit worker w0: the database knows segment 2 up to byte 500"),
        (_short_of_pages, "audit worker w0-admin: the database knows segment 1 up to byte 70"),
    ],
)
def test_a_check_finds_what_a_start_refuses_of_its_database(
    operator: Operator, spoil: Callable[[Operator], None], words: str
) -> None:
    spoil(operator)
    ended = operator.config("config", "check")
    assert (ended.status, ended.output) == (2, "")
    assert words in ended.errors
    assert len(ended.errors.splitlines()) == 1
    assert operator.folder.joinpath("var", "gatewright.db").exists() == (spoil is not _gone)
    assert operator.config("config", "check", "--offline").status == 0


def test_a_check_says_that_the_database_does_not_answer(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql+asyncpg://127.0.0.1:1/none"
    monkeypatch.setenv("GATEWRIGHT_DATABASE__URL", url)
    ended = operator.config("config", "check")
    assert ended.status == 2
    assert "the database does not answer" in ended.errors
    assert operator.config("config", "check", "--offline").status == 0


def test_the_schema_goes_down_and_up_again(operator: Operator) -> None:
    down = operator.config("database", "migrate", "--revision", "base")
    up = operator.config("database", "migrate")

    assert down.output == "schema: empty\n"
    assert up.output.startswith("schema: 0")
    assert operator.config("keys", "list").status == 0


def test_a_schema_nobody_knows_is_refused_from_any_schema(operator: Operator) -> None:
    there = operator.config("database", "migrate", "--revision", "nowhere")
    operator.config("database", "migrate", "--revision", "base")
    empty = operator.config("database", "migrate", "--revision", "nowhere")

    for ended in (there, empty):
        expected = "gatewright: --revision: there is no schema `nowhere`\n"
        assert (ended.status, ended.errors) == (2, expected)


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
def test_a_listener_that_must_not_start_says_why_in_a_line(
    operator: Operator, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A demo that runs beside the tests has the usual ports.
    for section in ("DATA_PLANE", "ADMIN"):
        monkeypatch.setenv(f"GATEWRIGHT_{section}__PORT", "0")
    operator.config("database", "migrate", "--revision", "base")
    ended = operator.starts(*command, "--config", operator.config_file)

    assert ended.status == 2
    (line,) = ended.errors.splitlines()
    assert line.startswith("gatewright: the database has no schema yet: run `gatewright ")


def test_engine_options_are_explained_by_the_engine_itself(newcomer: Operator) -> None:
    ended = newcomer.starts("engine", "serve", "--help")

    assert ended.status == 0
    assert "usage: gatewright engine serve" in ended.output
    assert "--served-name" in ended.output


@pytest.mark.parametrize(
    ("option", "told"),
    [("--name", "name: only characters that can be seen"),
     ("--organisation", "this holds what no database keeps")],
)  # fmt: skip
def test_an_argument_that_is_no_text_is_refused_in_a_line(
    operator: Operator, option: str, told: str
) -> None:
    given = {"--organisation": "acme", "--workspace": "w", "--project": "p", "--name": "n"}
    given[option] = "\udcff\udcfe"
    ended = operator.config("keys", "issue", *(part for pair in given.items() for part in pair))

    assert (ended.status, ended.output) == (2, "")
    assert ended.errors == f"gatewright: {told}\n"


def test_every_command_explains_itself(newcomer: Operator) -> None:
    for group in ([], ["keys"], ["budgets"], ["policy"], ["audit"], ["database"], ["config"]):
        ended = newcomer.types(*group, "--help")
        assert ended.status == 0
        assert "Usage: " in ended.output


def test_the_configuration_can_be_named_by_the_environment(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GATEWRIGHT_CONFIG", str(operator.config_file))

    assert operator.types("config", "check").status == 0


def test_who_names_no_configuration_is_told_how(newcomer: Operator) -> None:
    ended = newcomer.config("config", "check")

    said = "there is no such file: name one with --config, or make one with `gatewright init`"
    assert (ended.status, ended.errors) == (2, f"gatewright: {newcomer.config_file}: {said}\n")

"""Every wrong setting is refused before anything starts, with the file, the key and the reason."""

import os
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.assembly.configured_policy import load_policy
from gateway.configuration import texts
from gateway.configuration.reading import load_settings, parse_settings
from gateway.configuration.sections import CurrencySettings
from gateway.configuration.settings import Limits, Settings
from gateway.configuration.texts import TEXT_BYTES_MAX
from gateway.errors import ConfigurationInvalid
from gateway.money.price_file import prices_of
from tests.gateway.money.test_catalogue import GOOD as PRICES


FOLDER = Path("/somewhere")
PROVIDER = '[providers.p]\nkind = "engine"\njurisdiction = "in-house"\n'


def parse(text: str, **environment: str) -> Settings:
    return parse_settings(text, "x.toml", FOLDER, environment)


def test_an_empty_file_is_a_good_configuration() -> None:
    settings = parse("")

    assert settings.data_plane.host == "127.0.0.1"
    assert settings.path("var/audit") == FOLDER / "var/audit"
    assert settings.database_url == "sqlite+aiosqlite:////somewhere/var/gatewright.db"
    assert not settings.providers


def test_the_admin_listener_keeps_its_port_where_its_table_names_none() -> None:
    assert parse("[admin]\nhost = '0.0.0.0'").admin.port == 8081


CURRENCY = "[currencies.EUR]\nper_usd = '{}'\nas_of = '{}'"
WRONG: dict[str, tuple[str, str]] = {
    "data_plane = 5": ("data_plane", "Expected `object`"),
    "[data_plane]\nport = 'x'": ("data_plane.port", "Expected `int`"),
    "[data_plane]\nport = 70000": ("data_plane.port", "between 0 and 65535"),
    "[admin]\nport = -1": ("admin.port", "between 0 and 65535"),
    "[data_plane]\ntls_key_file = 'k'": ("data_plane.tls_certificate_file", "needed for TLS"),
    "[admin]\ntls_certificate_file = 'c'": ("admin.tls_key_file", "is needed for TLS"),
    "[admin]\ntls_client_ca_file = 'a'": ("admin.tls_certificate_file", "needed for TLS"),
    "[data_plan]\nport = 1": ("data_plan", "unknown field"),
    "[data_plane]\nprot = 1": ("data_plane.prot", "`prot`; did you mean `port`?"),
    "[secrets.master_key]\nfiel = 'x'": ("secrets.master_key.fiel", "did you mean `file`?"),
    "[secrets]\npepper = 'x'": ("secrets.pepper", '; say where it is kept: { env = "VARIABLE" }'),
    "[limits]\nbody_bytes_max = 0": ("limits.body_bytes_max", "greater than zero"),
    "[limits]\nrequest_deadline_s = -1.0": ("limits.request_deadline_s", "greater than zero"),
    "[limits]\nrequest_deadline_s = nan": ("limits.request_deadline_s", "finite"),
    "[limits]\nfirst_byte_s = inf": ("limits.first_byte_s", "finite"),
    "[inspection]\ndeadline_s = 0.0": ("inspection.deadline_s", "greater than zero"),
    "[inspection]\ndeadline_s = nan": ("inspection.deadline_s", "finite"),
    "[inspection]\ninline_bytes_max = -1": ("inspection.inline_bytes_max", "less than zero"),
    "[inspection]\nverdicts_kept = -1": ("inspection.verdicts_kept", "less than zero"),
    "[responses]\nkeep_days = -1": ("responses.keep_days", "less than zero"),
    "[retention.classes]\nbrief = -30": ("retention.classes.brief", "less than zero"),
    "[audit]\nappend_deadline_s = 0.0": ("audit.append_deadline_s", "greater than zero"),
    "[audit]\nsegment_bytes_max = 0": ("audit.segment_bytes_max", "greater than zero"),
    "[audit]\nfree_bytes_min = -1": ("audit.free_bytes_min", "less than zero"),
    "[limits]\nstream_idle_s = 1e13": ("limits.stream_idle_s", "must be 1000000000000 at most"),
    f"[limits]\nfile_bytes_max = {'9' * 400}": ("limits.file_bytes_max", "at most"),
    "[responses]\nkeep_days = 10000001": ("responses.keep_days", "must be 10000000 at most"),
    "[batches]\nwindow_hours = 1e9": ("batches.window_hours", "must be 100000000 at most"),
    "[retention.classes]\nlong = 10000001": ("retention.classes.long", "at most"),
    f"[alerts]\ndear_hour_microusd = {2**63}": ("alerts.dear_hour_microusd", "at most"),
    "[metrics]\nperiod_s = 0.5": ("metrics.period_s", "from 1 to 86400"),
    "[metrics]\nperiod_s = nan": ("metrics.period_s", "from 1 to 86400"),
    "[alerts]\ndear_hour_microusd = -1": ("alerts.dear_hour_microusd", "negative"),
    "[alerts]\npercents = [80, 1001]": ("alerts.percents", "at most 1000"),
    "[alerts]\npercents = [0]": ("alerts.percents", "above 0"),
    "[retention.classes]\na = 1\nb = 'x'": ("retention.classes.b", "Expected `int`"),
    "[sinks.a]\nkind = 'jsonl'\n[sinks.b]\nkind = 'x'": (
        "sinks.b.kind",
        "must be one of jsonl, syslog, http, otlp",
    ),
    "[currencies.EUR]\nper_usd = '1'": ("currencies.EUR.as_of", "missing required field"),
    "[obligations.organisations]\na = ['x']": (
        "obligations.organisations.a[0]",
        "must be one of ",
    ),
    "[sinks.a]\nkind = 'http'\n[sinks.a.credential]\ndb = 'x'": (
        "sinks.a.credential",
        "exactly one of `env` and `file`",
    ),
    '[rates]\nurl = "redis://h:port/0"': ("rates.url", "must be redis://host:port/number"),
    '[rates]\nurl = "redis://h:99999/0"': ("rates.url", "must be redis://host:port/number"),
    '[rates]\nurl = "redis://h/first"': ("rates.url", "must be redis://host:port/number"),
    '[response_cache]\nurl = "rediss://h/1/2"': ("response_cache.url", "host:port/number"),
    '[response_cache]\nurl = "redis://[::1/0"': ("response_cache.url", "host:port/number"),
    "[inspection]\ncascade_exploration = 0.06": ("inspection.cascade_exploration", "and 0.05"),
    "[drift]\nindex_least = 0.0": ("drift.index_least", "from above 0 to 10"),
    "[drift]\nindex_least = 10.1": ("drift.index_least", "from above 0 to 10"),
    "[drift]\nindex_least = nan": ("drift.index_least", "from above 0 to 10"),
    "[drift]\nrequests_least = 49": ("drift.requests_least", "must be 50 at least"),
    "[audit]\ncheckpoint_period_s = 0.5": ("audit.checkpoint_period_s", "between 1 and 50"),
    "[audit]\ncheckpoint_period_s = 50.5": ("audit.checkpoint_period_s", "between 1 and 50"),
    "[policy]\nheaders = ['X-Team']": ("policy.headers", "`X-Team` is not a header"),
    "[policy]\nheaders = ['authorization']": ("policy.headers", "`authorization` is not"),
    "[policy]\nheaders = ['cookie']": ("policy.headers", "`cookie` is not"),
    "[response_cache]\nembeddings = 'v'": ("response_cache.embeddings", "there is no target `v`"),
    PROVIDER + "native_batches = true\nassurances = ['no_retention']": (
        "providers.p.native_batches",
        "`no_retention` rules out",
    ),
    "[retention]\ndefault = 'short'": ("retention.default", "no class `short`"),
    "[retention.organisations]\na = 's'": ("retention.organisations.a", "no class `s`"),
    "[inspection]\ntolerated_opaque = ['images']": ("inspection.tolerated_opaque", "`images`"),
    CURRENCY.format("0.0", "2026-07-01"): ("currencies.EUR.per_usd", "above 0"),
    CURRENCY.format("\u0663", "2026-07-01"): ("currencies.EUR.per_usd", "above 0"),
    CURRENCY.format("1e3", "2026-07-01"): ("currencies.EUR.per_usd", "above 0"),
    CURRENCY.format("0.9", "2026-13-45"): ("currencies.EUR.as_of", "date such as"),
    CURRENCY.format("0.9", "20260701"): ("currencies.EUR.as_of", "date such as"),
    CURRENCY.format("0.9", ""): ("currencies.EUR.as_of", "date such as"),
    CURRENCY.replace("EUR", "USD").format("1", "2026-07-01"): ("currencies.USD", "a code such as"),
    CURRENCY.replace("EUR", "eur").format("1", "2026-07-01"): ("currencies.eur", "a code such as"),
    "[audit]\nworker = '../x'": ("audit.worker", "lower-case"),
    "[audit]\nworker = ''": ("audit.worker", "lower-case"),
    "[database]\nurl = 'mysql://x'": ("database.url", "must start with"),
    "[secrets.pepper]\nenv = 'A'\nfile = 'b'": ("secrets.pepper", "exactly one"),
    "[secrets.master_key]": ("secrets.master_key", "exactly one"),
    '[policy]\nfile = "a\\u0000b"': ("policy.file", "has a NUL in it"),
    '[policy]\nheaders = ["x", "\\u0000"]': ("policy.headers.[1]", "has a NUL in it"),
    "source = 'me'": ("source", "is not a setting"),
    "folder = '/'": ("folder", "is not a setting"),
    "log_level = 'chatty'": ("log_level", "must be one of debug, info, warning, error"),
    "[targets.t]\nprovider = 'nobody'\nmodel = 'm'": ("targets.t.provider", "no provider `nobody`"),
    "[targets.t]\nprovider = 'p'": ("targets.t.model", "missing required field `model`"),
    PROVIDER + "connect_timeout_s = 0.0": ("providers.p.connect_timeout_s", "greater than zero"),
    PROVIDER + "credential = {}": ("providers.p.credential", "exactly one"),
    PROVIDER + "api_key = 'x'": ("providers.p.api_key", "unknown field"),
    PROVIDER + "jurisdication = 'x'": ("providers.p.jurisdication", "did you mean `jurisdiction`?"),
    PROVIDER + "credential = 'x'": ("providers.p.credential", "say where it is kept: { env"),
    '[response_cache]\nurl = "http://h"': ("response_cache.url", "must start with redis://"),
    '[rates]\nurl = "redis://u:p@h"': ("rates.url", "must not hold a password"),
    "[response_cache]\ndeadline_s = 0.0": ("response_cache.deadline_s", "greater than zero"),
    '[vault]\nurl = "http://vault.internal:8200"': ("vault.url", "must be https beyond"),
    '[vault]\nurl = "vault.internal:8200"': ("vault.url", "must be https beyond"),
    '[vault]\nurl = "https://"': ("vault.url", "must be https beyond"),
    '[vault]\nurl = "https://u:p@vault.internal"': ("vault.url", "an address alone"),
    '[vault]\nurl = "http://[::1"': ("vault.url", "is no address"),
    '[aws]\nendpoint_url = "http://aws.internal"': ("aws.endpoint_url", "must be https beyond"),
    '[response_cache.password]\ndb = "x"': ("response_cache.password", "exactly one of"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_setting_is_named_with_its_reason(text: str) -> None:
    key, reason = WRONG[text]

    with pytest.raises(ConfigurationInvalid) as refused:
        parse(text)

    assert refused.value.source == "x.toml"
    assert refused.value.key == key
    assert reason in refused.value.reason
    assert str(refused.value).startswith("x.toml: ")


@pytest.mark.parametrize(
    "url", ["https://vault.internal:8200", "http://127.0.0.1:8200", "http://[::1]:8200"]
)
def test_vault_may_be_far_away_or_on_this_machine(url: str) -> None:
    assert parse(f'[vault]\nurl = "{url}"\n').vault.url == url


def test_text_that_is_no_toml_is_refused_with_the_place() -> None:
    with pytest.raises(ConfigurationInvalid, match="line 2"):
        parse("[limits]\nbody_bytes_max = \n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 3_000, "nested too deeply"),
        ("a = " + "{a=" * 3_000, "nested too deeply"),
        ("a." * 3_000 + "a = 1", "nested too deeply"),
        ("a = " + "9" * 5_000, "thousands of digits"),
    ],
    ids=["lists", "tables", "names", "digits"],
)
def test_text_beyond_what_can_be_read_is_refused_and_its_file_named(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=f"x.toml.*{reason}"):
        parse(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")

    for file in (tmp_path / "missing.toml", tmp_path, binary):
        with pytest.raises(ConfigurationInvalid) as refused:
            load_settings(file, {})
        assert refused.value.source == str(file)
        assert refused.value.reason


def test_a_file_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    long = tmp_path / "long.toml"
    with long.open("wb") as file:
        file.truncate(TEXT_BYTES_MAX + 1)

    for file_name in (long, Path("/dev/zero")):
        with pytest.raises(ConfigurationInvalid, match="File too large"):
            load_settings(file_name, {})


def test_a_pipe_is_read_to_its_end_and_one_that_nobody_writes_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--config <(…)` is a pipe, whose folder is nowhere; a forgotten one held a start for ever."""
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    monkeypatch.setattr(texts, "PIPE_PATIENCE_S", 0.05)
    with pytest.raises(ConfigurationInvalid, match=r"pipe.toml.*nothing came from it for 0.05 s"):
        load_settings(pipe, {})

    monkeypatch.setattr(texts, "PIPE_PATIENCE_S", 30.0)
    text = f"[data_plane]\nport = 9001\n{'# long' * 50_000}"
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(pipe.write_text, text)
        assert load_settings(pipe, {}).data_plane.port == 9001
        written.result()


def test_a_byte_order_mark_that_an_editor_put_in_front_is_not_part_of_a_text(
    tmp_path: Path,
) -> None:
    texts = {
        "gatewright.toml": '[policy]\nfile = "policy.toml"\n[prices]\nfile = "prices.toml"\n',
        "policy.toml": resources.files("policies").joinpath("default.toml").read_text("utf-8"),
        "prices.toml": PRICES,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text.replace("\n", "\r\n"), encoding="utf-8-sig")

    settings = load_settings(tmp_path / "gatewright.toml", {})

    assert load_policy(settings).name == "default"
    assert "m" in prices_of(settings).catalogue.models


def test_the_environment_overrides_the_file() -> None:
    settings = parse(
        "[data_plane]\nport = 1\n",
        GATEWRIGHT_DATA_PLANE__PORT="9000",
        GATEWRIGHT_LIMITS__STREAM_IDLE_S="2.5",
        GATEWRIGHT_DATABASE__URL="postgresql+asyncpg://u@h/d",
        GATEWRIGHT_TEST_POSTGRES_URL="of somebody else",
        PATH="/bin",
    )

    assert settings.data_plane.port == 9000
    assert settings.limits.stream_idle_s == 2.5
    assert settings.database_url == "postgresql+asyncpg://u@h/d"


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("GATEWRIGHT_DATA_PLANE__PORT", "many", "data_plane.port"),
        ("GATEWRIGHT_DATA_PLANE__PORT", "99999", "data_plane.port"),
        ("GATEWRIGHT_LIMITS__STREAM_IDLE_S", "-1", "limits.stream_idle_s"),
        ("GATEWRIGHT_DATABASE__URL", "mysql://hunter2", "database.url"),
        ("GATEWRIGHT_DATA_PLANE__PROT", "1", "data_plane.prot"),
        ("GATEWRIGHT_NOWHERE__PORT", "1", "nowhere"),
        ("GATEWRIGHT_PROVIDERS__P", "1", "providers"),
        ("GATEWRIGHT_SECRETS__PEPPER", "hunter2-hunter2", "secrets.pepper"),
        ("GATEWRIGHT_LOG_LEVEL", "hunter2", "log_level"),
        ("GATEWRIGHT_DATA_PLANE_PORT", "9000", "data_plane.port"),
        ("GATEWRIGHT_LIMITS_STREAM_IDLE_S", "hunter2", "limits.stream_idle_s"),
    ],
)
def test_a_wrong_variable_is_named_without_its_value(variable: str, value: str, key: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        parse("", **{variable: value})

    assert refused.value.source == variable
    assert refused.value.key == key
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GATEWRIGHT_DATA_PLANE_PORT", "tcp://10.0.0.7:8080"),
        ("GATEWRIGHT_ADMIN_PORT", "udp://10.0.0.7:8081"),
        ("GATEWRIGHT_DATA_PLANE_PORT_8080_TCP_PORT", "8080"),
        ("GATEWRIGHT_SERVICE_PORT", "8080"),
        ("GATEWRIGHT_ADMIN_SERVICE_PORT", "8081"),
        ("GATEWRIGHT_DATA_PLANE_SERVICE_HOST", "10.0.0.7"),
        ("GATEWRIGHT_DATA_PLANE_PORT", ""),
    ],
)
def test_what_kubernetes_sets_for_a_service_is_passed_over(variable: str, value: str) -> None:
    assert parse("", **{variable: value}) == parse("")


def test_a_setting_with_one_underscore_too_few_is_told_the_right_one() -> None:
    with pytest.raises(ConfigurationInvalid, match="write GATEWRIGHT_DATA_PLANE__PORT"):
        parse("", GATEWRIGHT_DATA_PLANE_PORT="9000")


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("GATEWRIGHT_LOGLEVEL", "GATEWRIGHT_LOG_LEVEL"),
        ("GATEWRIGHT_LOG_LEVLE", "GATEWRIGHT_LOG_LEVEL"),
        ("GATEWRIGHT_DATAPLANE_PORT", "GATEWRIGHT_DATA_PLANE__PORT"),
        ("GATEWRIGHT_ADMIN_HOTS", "GATEWRIGHT_ADMIN__HOST"),
        ("GATEWRIGHT_CONFIGS", "GATEWRIGHT_CONFIG"),
    ],
)
def test_a_mistyped_variable_is_refused_and_told_what_was_meant(variable: str, meant: str) -> None:
    """It was passed over: a worker listened elsewhere than it was told to, and nobody said so."""
    with pytest.raises(ConfigurationInvalid, match=f"^{variable}: .*; write {meant}$"):
        parse("", **{variable: "9000"})
    assert parse("", GATEWRIGHT_CONFIG="/etc/x.toml", GATEWRIGHT_KEY="k") == parse("")


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("GATEWRIGHT_DATAPLANE__PORT", "data_plane"),
        ("GATEWRIGHT_DATA_PLANE__PROT", "port"),
    ],
)
def test_a_mistyped_section_or_key_of_a_variable_is_told_what_was_meant(
    variable: str, meant: str
) -> None:
    with pytest.raises(ConfigurationInvalid, match=f"did you mean `{meant}`"):
        parse("", **{variable: "9000"})


def test_a_variable_that_the_file_names_is_read_whatever_its_name() -> None:
    named = '[alerts]\nsigning_key = { env = "GATEWRIGHT_ALERTS_SIGNING_KEY" }\n'
    settings = parse(named, GATEWRIGHT_ALERTS_SIGNING_KEY="a")

    assert settings == parse(named)
    with pytest.raises(ConfigurationInvalid, match="write GATEWRIGHT_ALERTS__SIGNING_KEY"):
        parse("", GATEWRIGHT_ALERTS_SIGNING_KEY="a")


def test_what_is_wrong_in_the_file_is_said_of_the_file() -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        parse("[admin]\nport = 70000\n", GATEWRIGHT_DATA_PLANE__PORT="9000")

    assert refused.value.source == "x.toml"


def test_bounds_themselves_may_be_set() -> None:
    text = (
        "[inspection]\ncascade_exploration = 0.05\n[drift]\nindex_least = 10.0\n"
        "requests_least = 50\n[alerts]\npercents = [1, 1000]\ndear_hour_microusd = 0\n"
        "[policy]\nheaders = ['x-team']\n[data_plane]\nport = 65535\n[admin]\nport = 0\n"
    )
    slow = parse("[audit]\ncheckpoint_period_s = 50.0\n")
    settings = parse(f"{text}[audit]\ncheckpoint_period_s = 1.0\n")
    assert slow.audit.checkpoint_period_s == 50 * settings.audit.checkpoint_period_s
    assert settings.inspection.cascade_exploration == 0.05
    assert settings.policy.headers == ("x-team",)
    batched = parse(PROVIDER + "native_batches = true\nassurances = ['no_training']\n")
    assert batched.providers["p"].native_batches


@pytest.mark.parametrize("url", ["", "redis://h", "redis://[::1]:6379/3", "rediss://h:1/"])
def test_an_address_of_a_shared_server_may_say_more_or_less(url: str) -> None:
    assert parse(f'[rates]\nurl = "{url}"\n').rates.url == url


def test_the_environment_overrides_what_stands_in_no_section() -> None:
    text = 'log_level = "debug"\nadmin_url = "https://old.example"\n'
    settings = parse(
        text,
        GATEWRIGHT_LOG_LEVEL="warning",
        GATEWRIGHT_ADMIN_URL="https://admin.example",
        GATEWRIGHT_DATA_PLANE_URL="https://ai.example",
    )
    assert settings.log_level == "warning"
    assert settings.admin_url == "https://admin.example"
    assert settings.data_plane_url == "https://ai.example"
    assert parse(text, GATEWRIGHT_ADMIN_URL="").admin_url == "https://old.example"


def test_a_variable_for_a_section_that_is_none_is_refused_like_the_file() -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        parse("limits = 5", GATEWRIGHT_LIMITS__STREAM_IDLE_S="2.5")

    assert refused.value.key == "limits"


toml_values = st.one_of(
    st.integers(-(2**40), 2**40).map(str),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6).map(repr),
    st.sampled_from(["true", "nan", "inf", "-inf", '""', '"x"', "[]", "{}", "[1]", "1979-05-27"]),
)


@given(key=st.sampled_from(Limits.__struct_fields__), value=toml_values)
def test_a_limit_is_a_finite_number_above_zero_or_refused(key: str, value: str) -> None:
    refused_key = ""
    try:
        settings = parse(f"[limits]\n{key} = {value}\n")
    except ConfigurationInvalid as refused:
        refused_key = refused.key
    else:
        assert 0 < getattr(settings.limits, key) < float("inf")
    assert refused_key in ("", f"limits.{key}")


def test_what_is_documented_to_keep_nothing_at_zero_may_be_zero() -> None:
    zeros = (
        "[audit]\nfree_bytes_min = 0\n[inspection]\nverdicts_kept = 0\ninline_bytes_max = 0\n"
        "deadline_s_per_mib = 0.0\ncascade_exploration = 0.0\n[responses]\nkeep_days = 0\n"
        "conversation_keep_days = 0\nbackground_running_max = 0\n"
        "[response_cache]\nmemory_bytes_max = 0\n"
    )
    settings = parse(f"{zeros}[retention.classes]\nbrief = 0\n")

    assert (settings.inspection.verdicts_kept, settings.responses.keep_days) == (0, 0)
    assert settings.responses.conversation_keep_days == 0
    assert settings.responses.background_running_max == 0
    assert (settings.response_cache.memory_bytes_max, settings.audit.free_bytes_min) == (0, 0)


def test_a_currency_is_its_code_with_a_rate_and_a_day() -> None:
    settings = parse(CURRENCY.format("84.10", "2026-11-20"))
    assert settings.currencies["EUR"] == CurrencySettings("84.10", "2026-11-20")


URL = "postgresql+asyncpg://"


@pytest.mark.parametrize(
    "rest",
    [
        *("postgres:postgres@localhost/gatewright", "gatewright:gatewright@127.0.0.1/other"),
        *("gate:password@db.example/gatewright", "gate:P%61ssword1@db.example/gatewright"),
        *("gate:gate@db.example/gatewright", "gate:gatewright1@db.example/gatewright"),
        *("gate:12345678@db.example/gatewright", "gate:short1@db.example/gatewright"),
        *("gate:@db.example/gatewright", "gate:@/gatewright?host=db.example"),
        *("gate@db.example/n?password=postgres", "gate:aaaaaaaaaaaa@localhost/n"),
        *("gate:abcabcabcabc@localhost/n", "gate:tyGq0-v@localhost/n"),
        *("gate:qwertyuiop@localhost/n", "gate:zyxwvutsrq@localhost/n"),
        *("gate:0987654321@localhost/n", "gate:letmein2024!@localhost/n"),
        *("gate:administrator@localhost/administrator", "elizabethan:Elizabethan@localhost/n"),
        *("elizabethan:elizabethan1@localhost/n", "gate:db.example.org@db.example.org/n"),
        *("gate:root-2024@localhost/n", "gate:admin_123@localhost/n", "gate:default1@localhost/n"),
        *("gate:example1@localhost/n", "gate:my-changeme!@localhost/n"),
    ],
)
def test_a_password_of_the_database_that_anybody_would_try_stops_the_start(rest: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        parse(f'[database]\nurl = "{URL}{rest}"\n')
    with pytest.raises(ConfigurationInvalid) as by_environment:
        parse("", GATEWRIGHT_DATABASE__URL=f"{URL}{rest}")

    assert (refused.value.key, by_environment.value.key) == ("database.url", "database.url")
    assert "password" in refused.value.reason
    assert rest.split("@", maxsplit=1)[0] not in str(refused.value)


@pytest.mark.parametrize(
    "rest",
    [
        *("gate:tyGq0-vXw2_Kd@db.example/gatewright", "gate@db.example/gatewright"),
        *("postgres:@/postgres?host=/var/run/postgresql", "postgres@localhost/gatewright"),
        *("postgres:@127.0.0.1:5432/gatewright", "postgres:@localhost/gatewright"),
        *("gate:tyGq0-vX@localhost/n", "gate:tygqtygq@localhost/n", "postgres:@[::1]/gatewright"),
        "gate:rootbeer-and-more@localhost/n",
    ],
)
def test_a_database_without_a_default_password_may_be_used(rest: str) -> None:
    assert parse(f'[database]\nurl = "{URL}{rest}"\n').database_url == f"{URL}{rest}"


def test_a_default_password_that_the_driver_would_find_by_itself_stops_the_start() -> None:
    url = f"{URL}gate@db.example/gatewright"
    with pytest.raises(ConfigurationInvalid):
        parse("", GATEWRIGHT_DATABASE__URL=url, PGPASSWORD="postgres")
    parse("", GATEWRIGHT_DATABASE__URL=url, PGPASSWORD="tyGq0-vXw2_Kd")

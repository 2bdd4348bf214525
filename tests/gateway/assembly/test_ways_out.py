"""Proxies, authorities and certificates of providers: read at the start, renewed while it runs."""

import base64
import os
import secrets
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.assembly.places import Rotation, make_renewal
from gateway.assembly.ways_out import Renewal
from gateway.assembly.wiring import make_egress, make_providers
from gateway.clock import SystemClock
from gateway.configuration.reading import parse_settings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid, UpstreamRefused
from gateway.metrics import Metrics
from gateway.pool.provider import PoolProvider
from gateway.ports import Provider
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.pool import Pool
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.engine import EngineProvider
from gateway.providers.http_provider import HttpProvider
from gateway.providers.registry import model_hosts, parcel_service
from gateway.store.engine import open_database
from tests.certificates import HOUR, Authority, Hours
from tests.forward_proxy import ForwardProxy
from tests.gateway.providers.samples import HOME, make_call
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio


def settings_of(folder: Path, provider: str, more: str = "") -> Settings:
    text = f"[providers.p]\njurisdiction = '{HOME}'\n{provider}\n{more}"
    return parse_settings(text, "gatewright.toml", folder, {})


def made(settings: Settings) -> tuple[dict[str, Provider], Egress]:
    egress = make_egress(settings)
    return make_providers(settings, egress, SystemClock().monotonic_s), egress


def refusal(folder: Path, provider: str, more: str = "") -> ConfigurationInvalid:
    with pytest.raises(ConfigurationInvalid) as refused:
        made(settings_of(folder, provider, more))
    return refused.value


SHOWN = "kind = 'openai_compatible'\nbase_url = 'https://127.0.0.1:1'\n"
MUTUAL = f"{SHOWN}client_certificate = 'our.crt'\nclient_key = 'our.key'\n"


@pytest.fixture
def house(tmp_path: Path) -> Authority:
    issued = (authority := Authority(tmp_path)).issue()
    issued.chain.rename(tmp_path / "our.crt")
    issued.key.rename(tmp_path / "our.key")
    return authority


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "is no PEM of certificates"),
        (b"no certificate\xff", "is no PEM of certificates"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "is no PEM of certificates",
        ),
        (b" " * (4 * 1024 * 1024 + 1), "is larger than 4194304 bytes"),
    ],
)
def test_authorities_that_cannot_be_read_stop_the_start(
    text: bytes | None, reason: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "ca.pem").write_bytes(text)
    refused = refusal(tmp_path, f"{SHOWN}ca_file = 'ca.pem'")

    assert refused.message == f"{tmp_path / 'ca.pem'}: providers.p.ca_file: {reason}"


def test_words_around_certificates_and_several_of_them_are_read(tmp_path: Path) -> None:
    files = [Authority(tmp_path, name).file for name in ("one", "two")]
    text = "".join(f"# Straße {file}\n{file.read_text()}\n" for file in files)
    (tmp_path / "ca.pem").write_text(text, encoding="utf-8")
    providers, _ = made(settings_of(tmp_path, f"{SHOWN}ca_file = 'ca.pem'"))

    way_out = providers["p"].config.way_out  # type: ignore[attr-defined]
    assert way_out.tls.cert_store_stats()["x509_ca"] == 2


async def test_no_older_tls_is_spoken_than_to_callers(tmp_path: Path, house: Authority) -> None:
    """Whatever the system's OpenSSL allows."""
    own, ours = f"{SHOWN}ca_file = '{house.file.name}'", MUTUAL
    for text in (own, ours):
        providers, _ = made(settings_of(tmp_path, text))
        way_out = providers["p"].config.way_out  # type: ignore[attr-defined]
        assert way_out.tls.minimum_version == ssl.TLSVersion.TLSv1_2
    endpoint = parse_endpoint("p", "https://127.0.0.1:1", HOME)
    pool = Pool(GuardedResolver(), None, 1, 1.0)
    tls = await pool._trust(endpoint)
    assert tls is not None
    assert tls.minimum_version == ssl.TLSVersion.TLSv1_2


def of_another(folder: Path, house: Authority) -> str:
    house.issue().key.replace(folder / "our.key")
    return "our.key: providers.p.client_key: is not the key of the certificate"


def expired(folder: Path, house: Authority) -> str:
    house.issue(begins=HOUR * -2, ends=HOUR * -1).chain.replace(folder / "our.crt")
    return "our.crt: providers.p.client_certificate: the certificate ended at "


def to_come(folder: Path, house: Authority) -> str:
    house.issue(begins=HOUR, ends=HOUR * 2).chain.replace(folder / "our.crt")
    return "our.crt: providers.p.client_certificate: the certificate is not good before "


def no_certificate(folder: Path, _: Authority) -> str:
    (folder / "our.crt").write_text("nothing")
    return "our.crt: providers.p.client_certificate: holds no certificate in PEM"


def no_certificate_file(folder: Path, _: Authority) -> str:
    (folder / "our.crt").unlink()
    return "our.crt: providers.p.client_certificate: cannot be read (No such file"


def no_key_file(folder: Path, _: Authority) -> str:
    (folder / "our.key").unlink()
    return "our.key: providers.p.client_key: cannot be read (No such file"


def no_key(folder: Path, _: Authority) -> str:
    (folder / "our.key").write_text("nothing")
    return "our.key: providers.p.client_key: holds no private key in PEM"


def readable_key(folder: Path, _: Authority) -> str:
    (folder / "our.key").chmod(0o644)
    return "our.key: providers.p.client_key: can be read by others (mode 0644)"


def encrypted_key(folder: Path, _: Authority) -> str:
    closed = serialization.BestAvailableEncryption(secrets.token_bytes(9))
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    raw = key.private_bytes(serialization.Encoding.PEM, form, closed)
    (folder / "our.key").write_bytes(raw)
    return "our.key: providers.p.client_key: is locked with a passphrase"


@pytest.mark.parametrize(
    "spoil",
    [
        *(of_another, expired, to_come, no_certificate, no_certificate_file),
        *(no_key, no_key_file, readable_key, encrypted_key),
    ],
)
def test_a_certificate_that_nobody_could_be_shown_stops_the_start(
    spoil: object, tmp_path: Path, house: Authority
) -> None:
    made(settings_of(tmp_path, MUTUAL))
    assert callable(spoil)
    reason = spoil(tmp_path, house)

    refused = refusal(tmp_path, MUTUAL)
    assert refused.message.startswith(f"{tmp_path}/{reason}")
    assert "\n" not in refused.message


PROXIED = f"{SHOWN}proxy = 'http://127.0.0.1:3128'\n"


@pytest.mark.parametrize(
    ("provider", "key", "reason"),
    [
        (f"{SHOWN}client_certificate = 'our.crt'", "client_certificate", "without `client_key`"),
        (f"{SHOWN}client_key = 'our.key'", "client_key", "without `client_certificate`"),
        (f"{SHOWN}proxy_credential = {{ file = 'x' }}", "proxy_credential", "without `proxy`"),
        (f"{SHOWN}proxy = 'https://127.0.0.1:3128'", "proxy", "must be http://host:port"),
        (f"{PROXIED}proxy_credential = {{ db = 'x' }}", "proxy_credential", "`env` and `file`"),
        (f"{PROXIED}proxy_credential = {{ file = 'odd' }}", "proxy_credential", "user:password"),
        (PROXIED.replace("https:", "http:", 1), "base_url", "is plain http"),
        ("kind = 'scripted'\nproxy = 'http://127.0.0.1:3128'", "proxy", "of kind scripted"),
        ("kind = 'pool'\nmembers = []\nca_file = 'authority.pem'", "ca_file", "of kind pool"),
    ],
)
@pytest.mark.usefixtures("house")
def test_what_means_nothing_is_refused_with_file_and_key(
    provider: str, key: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "odd").touch(mode=0o600)
    (tmp_path / "odd").write_text(secrets.token_hex(8))
    refused = refusal(tmp_path, provider)

    assert (refused.source, refused.key) == ("gatewright.toml", f"providers.p.{key}")
    assert reason in refused.reason


class World:
    """A worker's providers in a folder whose files are renewed under them."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.providers, self.egress = made(settings)
        clock = SystemClock()
        self.published = 0
        (folder / "master.key").touch(mode=0o600)
        (folder / "master.key").write_bytes(base64.b64encode(secrets.token_bytes(32)))
        self.database = open_database(settings.database_url)
        self.rotation = Rotation(
            settings,
            self.database,
            clock,
            self.egress,
            providers=self.providers,
            hosts=model_hosts(self.providers),
            publish=self.publish,
        )
        self.clock, self.metrics = Hours(), Metrics()
        self.renewal = Renewal(
            settings,
            self.egress,
            self.providers,
            self.rotation.swap,
            self.clock,
            self.metrics.certificates,
        )

    async def look_twice(self) -> None:
        """What changed is taken once it has rested for a look."""
        await self.renewal.perform()
        await self.renewal.perform()

    def publish(self) -> None:
        self.published += 1

    async def says(self, name: str = "p") -> str:
        """What a probe says; empty where all is well."""
        return await self.providers[name].probe()

    def left_s(self, setting: str) -> float:
        """What the metric says of the file that a setting names."""
        name, labels = "gatewright_provider_certificate_seconds_left", {"provider": "p"}
        found = self.metrics.registry.get_sample_value(name, {**labels, "setting": setting})
        assert found is not None
        return found

    async def close(self) -> None:
        await self.egress.close()
        await self.database.close()


MASTER = "[secrets]\nmaster_key = { file = 'master.key' }\n"


@pytest.fixture
async def upstream(house: Authority) -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream(tls=house.server("127.0.0.1", wants_from=house)) as running:
        yield running


@pytest.fixture
async def world(
    tmp_path: Path, house: Authority, upstream: RecordingUpstream
) -> AsyncIterator[World]:
    provider = (
        "kind = 'openai'\ncredential = { file = 'api.key' }\n"
        f"base_url = '{upstream.url}'\nca_file = '{house.file.name}'\n"
        "client_certificate = 'our.crt'\nclient_key = 'our.key'\n"
    )
    (tmp_path / "api.key").touch(mode=0o600)
    (tmp_path / "api.key").write_text(f"sk-{secrets.token_hex(12)}")
    running = World(tmp_path, settings_of(tmp_path, provider, MASTER))
    yield running
    await running.close()


@pytest.fixture
def told(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The warnings of what was looked at."""
    said: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        world.renewal._log, "warning", lambda *words, **fields: said.append((*words, fields))
    )
    return said


async def test_a_renewed_certificate_is_shown_without_a_restart(
    world: World, house: Authority, upstream: RecordingUpstream, told: list[tuple[object, ...]]
) -> None:
    assert await world.says() == ""
    first = world.providers["p"]
    await world.renewal.perform()
    assert world.providers["p"] is first

    issued = house.issue()
    issued.chain.replace(world.folder / "our.crt")
    await world.renewal.perform()  # the key is not there yet
    assert world.providers["p"] is first
    assert told == []
    assert await world.says() == ""

    issued.key.replace(world.folder / "our.key")
    await world.look_twice()
    assert world.providers["p"] is not first
    assert world.published == 1
    assert await world.says() == ""
    assert [request.connection for request in upstream.requests] == [1, 1, 2]


async def test_who_is_not_trusted_any_more_is_not_called_any_more(
    world: World, house: Authority, upstream: RecordingUpstream
) -> None:
    """Not even by a connection that was kept from before."""
    assert await world.says() == ""
    Authority(world.folder, "elsewhere").file.replace(house.file)
    await world.look_twice()

    assert await world.says() != ""
    assert len(upstream.requests) == 1


async def test_files_that_went_bad_leave_the_former_in_use_and_are_told_once(
    world: World, told: list[tuple[object, ...]]
) -> None:
    (world.folder / "our.key").chmod(0o644)
    os.utime(world.folder / "our.key", (1, 1))
    for _ in range(3):
        await world.renewal.perform()
    assert await world.says() == ""

    ((event, fields),) = told
    assert event == "certificates:refused"
    assert fields == {
        "provider": "p",
        "reason": "providers.p.client_key: can be read by others (mode 0644); make it 0600",
    }


async def test_a_rotated_credential_goes_by_the_same_way_out_and_the_other_way_round(
    world: World, house: Authority, upstream: RecordingUpstream
) -> None:
    later = f"sk-{secrets.token_hex(12)}"
    (world.folder / "api.key").write_text(later)
    await world.rotation.refresh()
    assert await world.says() == ""

    issued = house.issue()
    issued.key.replace(world.folder / "our.key")
    issued.chain.replace(world.folder / "our.crt")
    await world.look_twice()
    assert await world.says() == ""
    said = [request.headers["authorization"] for request in upstream.requests]
    assert said == [f"Bearer {later}"] * 2


def test_who_has_no_files_is_not_looked_after(tmp_path: Path) -> None:
    providers, egress = made(settings_of(tmp_path, PROXIED))
    settings = settings_of(tmp_path, PROXIED)

    assert (
        make_renewal(settings, egress, providers, lambda *_: None, Hours(), Metrics().certificates)
        is None
    )


@pytest.mark.parametrize("kind", ["openai", "anthropic", "openai_compatible", "engine"])
async def test_all_that_a_provider_is_asked_goes_through_its_proxy(
    kind: str, tmp_path: Path, house: Authority
) -> None:
    async with (
        RecordingUpstream(tls=house.server("127.0.0.1")) as upstream,
        ForwardProxy() as proxy,
    ):
        text = f"gateway:{secrets.token_hex(12)}"
        proxy.authorization = f"Basic {base64.b64encode(text.encode()).decode()}"
        for name, said in (("proxy.secret", text), ("api.key", f"sk-{secrets.token_hex(9)}")):
            (tmp_path / name).touch(mode=0o600)
            (tmp_path / name).write_text(f"{said}\n")
        provider = (
            f"kind = '{kind}'\nbase_url = '{upstream.url}'\nca_file = '{house.file.name}'\n"
            f"credential = {{ file = 'api.key' }}\nproxy = '{proxy.url}'\n"
            "proxy_credential = { file = 'proxy.secret' }"
        )
        providers, egress = made(settings_of(tmp_path, provider))
        one = providers["p"]
        assert isinstance(one, HttpProvider)
        assert await one.probe() == ""
        assert await one.list_status(5.0) == 200
        call = make_call(stream=kind == "anthropic")
        reply = await one.open(call)
        assert b"".join([piece async for piece in reply.chunks()])
        if isinstance(one, EngineProvider):
            assert await one.list_models()
            await one.figures()
        if parcels := parcel_service(one):
            with pytest.raises(UpstreamRefused):
                await parcels.look("batch_unknown", 5.0)
        await one.reach("127.0.0.1")
        await egress.close()

        assert len(upstream.requests) >= 3
        # The last was only made to see whether it can be.
        assert proxy.tunnels == len({each.connection for each in upstream.requests}) + 1
        assert proxy.asked == [upstream.url.removeprefix("https://")] * proxy.tunnels
        assert not any("proxy-authorization" in each.headers for each in upstream.requests)


async def test_members_of_a_pool_are_renewed_in_it(tmp_path: Path, house: Authority) -> None:
    async with RecordingUpstream(tls=house.server("127.0.0.1", wants_from=house)) as upstream:
        engine = (
            f"kind = 'engine'\nbase_url = '{upstream.url}'\nca_file = '{house.file.name}'\n"
            "client_certificate = 'our.crt'\nclient_key = 'our.key'\n"
        )
        pool = f"[providers.all]\nkind = 'pool'\njurisdiction = '{HOME}'\nmembers = ['p']\n"
        world = World(tmp_path, settings_of(tmp_path, engine, pool + MASTER))
        group = world.providers["all"]
        assert isinstance(group, PoolProvider)
        assert await group.probe() == ""
        before, former = len(upstream.requests), upstream.connections

        issued = house.issue()
        issued.key.replace(tmp_path / "our.key")
        issued.chain.replace(tmp_path / "our.crt")
        await world.look_twice()
        assert await group.probe() == ""
        reply = await group.open(make_call())
        assert await reply.read()
        await world.close()

        later = upstream.requests[before:]
        assert any(request.method == "POST" for request in later)
        assert all(request.connection > former for request in later)


async def test_a_certificate_and_an_authority_are_told_of_before_they_end(
    world: World, house: Authority, told: list[tuple[object, ...]]
) -> None:
    """The certificate ends in an hour, the authority in a day."""
    await world.renewal.perform()
    assert told == []
    assert world.left_s("client_certificate") == pytest.approx(3600, abs=60)
    assert world.left_s("ca_file") == pytest.approx(24 * 3600, abs=60)

    for minutes in (50, 51, 70):
        world.clock.later_us = minutes * 60 * 1_000_000
        await world.renewal.perform()
    assert [each[0] for each in told] == ["certificates:end"] * 2
    said = [dict(each[1])["reason"].partition(" at ")[0] for each in told]  # type: ignore[call-overload]
    assert said == ["client_certificate ends", "client_certificate has ended"]
    assert world.left_s("client_certificate") < 0

    issued = house.issue(ends=HOUR * 20)
    issued.chain.replace(world.folder / "our.crt")
    issued.key.replace(world.folder / "our.key")
    await world.look_twice()
    assert world.left_s("client_certificate") > 0
    world.clock.later_us = 22 * 3600 * 1_000_000
    await world.renewal.perform()
    said = [dict(each[1])["reason"].partition(" at ")[0] for each in told[2:]]  # type: ignore[call-overload]
    assert said == ["ca_file ends", "client_certificate has ended"]

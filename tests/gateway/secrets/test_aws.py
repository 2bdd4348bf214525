"""AWS as a place of secrets, by its official client."""

import base64
import logging
import os
import secrets
from collections.abc import Callable, Iterator

import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from gateway.configuration.sections import AwsSettings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.aws import AwsPlace, client_of, secrets_manager
from gateway.secrets.aws_kms import PREFIX, AwsKms
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.key_services import KeyServiceFailed


pytestmark = pytest.mark.anyio


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsSettings]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield AwsSettings(region="ap-south-1", endpoint_url=f"http://{host}:{port}")
    server.stop()


@pytest.mark.filterwarnings("ignore")
async def test_secrets_manager_gives_texts_and_fields_and_new_versions(aws: AwsSettings) -> None:
    client = secrets_manager(aws)
    client.create_secret(Name="plain", SecretString="sk-aws")
    client.create_secret(Name="fields", SecretString='{"key": "sk-field", "n": 5}')
    place = AwsPlace(client, "plain")

    assert (await place.read()).reveal() == "sk-aws"
    assert (await AwsPlace(client, "fields#key").read()).reveal() == "sk-field"
    client.put_secret_value(SecretId="plain", SecretString="sk-new")
    assert (await place.read()).reveal() == "sk-new"
    client.create_secret(Name="list", SecretString='["key"]')
    client.create_secret(Name="empty", SecretString='{"key": ""}')
    client.create_secret(Name="binary", SecretBinary=b"sk-binary")
    client.create_secret(Name="deep", SecretString='{"key":' + "[" * 10_000)
    nothing = ("missing", "fields#n", "fields#nothing", "plain#key", "list#key", "empty#key")
    for reference in (*nothing, "binary", "binary#key", "deep#key"):
        with pytest.raises(SecretUnavailableError):
            await AwsPlace(client, reference).read()


@pytest.mark.parametrize("make", [secrets_manager, lambda settings: AwsKms(settings, "key")])
@pytest.mark.parametrize(
    "settings", [AwsSettings(), AwsSettings("a region"), AwsSettings("ap-south-1", "nowhere")]
)
async def test_of_what_no_client_of_aws_can_be_made_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, settings: AwsSettings, make: Callable[[AwsSettings], object]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    with pytest.raises(ConfigurationInvalid, match="boto3 makes no client of it"):
        make(settings)


@pytest.mark.filterwarnings("ignore")
async def test_a_secrets_manager_that_does_not_answer_is_an_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    client = secrets_manager(AwsSettings("ap-south-1", "http://127.0.0.1:9"))

    with pytest.raises(SecretUnavailableError, match="failed"):
        await AwsPlace(client, "plain").read()


@pytest.mark.filterwarnings("ignore")
def test_what_kms_wrapped_for_something_else_is_no_master_key(aws: AwsSettings) -> None:
    """Whoever may use the key for another purpose can neither plant a master key nor open one."""
    client = client_of(aws, "kms")
    name = client.create_key()["KeyMetadata"]["KeyId"]
    service, key = AwsKms(aws, name), secrets.token_bytes(32)
    wrapped = service.wrap(key)
    assert service.unwrap(wrapped) == key

    blob = base64.b64decode(wrapped.removeprefix(PREFIX))
    for context in ({}, {"purpose": "backups"}):
        with pytest.raises(ClientError):
            client.decrypt(CiphertextBlob=blob, KeyId=name, EncryptionContext=context)
        planted = client.encrypt(KeyId=name, Plaintext=key, EncryptionContext=context)
        text = PREFIX + base64.b64encode(planted["CiphertextBlob"]).decode()
        with pytest.raises(KeyServiceFailed, match="KMS refused"):
            service.unwrap(text)


@pytest.mark.filterwarnings("ignore")
async def test_no_library_writes_a_secret_to_the_log_at_any_level(
    aws: AwsSettings, caplog: pytest.LogCaptureFixture
) -> None:
    text = secrets.token_hex(16)
    client = secrets_manager(aws)
    client.create_secret(Name="logged", SecretString=text)
    with caplog.at_level(logging.DEBUG):
        assert (await AwsPlace(client, "logged").read()).reveal() == text
    assert text not in caplog.text

"""Secrets in AWS Secrets Manager; credentials come from where boto3 looks for them.

Imported only if AWS is configured: boto3 is an optional package.
"""

import asyncio
import logging
from typing import Any
from urllib.parse import urlsplit

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from gateway.configuration.sections import AwsSettings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret


TIMEOUT_S = 5
# At level `debug` it logs the answers it gets, including secrets.
logging.getLogger("botocore").setLevel(logging.WARNING)


def secrets_manager(settings: AwsSettings) -> Any:
    """See `client_of`."""
    return client_of(settings, "secretsmanager")


def client_of(settings: AwsSettings, service: str) -> Any:
    """A client of one region; it opens nothing yet.

    Raises:
        ConfigurationInvalid: no region is named, or region or address is invalid.
    """
    try:
        return boto3.client(
            service,
            region_name=settings.region or None,
            endpoint_url=settings.endpoint_url or None,
            config=Config(
                connect_timeout=TIMEOUT_S,
                read_timeout=TIMEOUT_S,
                retries={"max_attempts": 2},
                # A plain-http address is on this machine; a proxy of the environment is not, and
                # would read along. None uses the environment.
                proxies={} if urlsplit(settings.endpoint_url).scheme == "http" else None,
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationInvalid("aws", "", f"boto3 makes no client of it: {error}") from None


class AwsPlace:
    """`name` for a secret that is a text, `name#field` for one that is a JSON object."""

    def __init__(self, client: Any, reference: str) -> None:
        self._client = client
        self._name, _, self._field = reference.partition("#")

    async def read(self) -> Secret[str]:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Secret[str]:
        try:
            text = self._client.get_secret_value(SecretId=self._name).get("SecretString", "")
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            raise SecretUnavailableError(f"Secrets Manager refused ({code})") from None
        except BotoCoreError as error:
            reason = f"Secrets Manager failed ({type(error).__name__})"
            raise SecretUnavailableError(reason) from None
        value = self._field_of(text) if self._field else text
        if not isinstance(value, str) or not value:
            raise SecretUnavailableError("the secret in Secrets Manager has no such field")
        return Secret(value)

    def _field_of(self, text: str) -> object:
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return None
        return found.get(self._field) if isinstance(found, dict) else None

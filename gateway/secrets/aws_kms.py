"""AWS KMS as a key service. Imported only if it is configured."""

import base64
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from gateway.configuration.sections import AwsSettings
from gateway.secrets.aws import client_of
from gateway.secrets.key_services import KeyServiceFailed, decoded


PREFIX = "aws-kms:"
_CONTEXT = {"purpose": "gatewright master key"}
"""Authenticated with the key: text that was wrapped for another purpose is not unwrapped here."""


class AwsKms:
    """One key of KMS; wrapped text is `aws-kms:` and base64."""

    def __init__(self, settings: AwsSettings, key: str) -> None:
        self._key = key
        self._client: Any = client_of(settings, "kms")

    def wrap(self, key: bytes) -> str:
        blob = self._ask("encrypt", "CiphertextBlob", Plaintext=key)
        return PREFIX + base64.b64encode(blob).decode()

    def unwrap(self, wrapped: str) -> bytes:
        blob = decoded(wrapped.removeprefix(PREFIX))
        return self._ask("decrypt", "Plaintext", CiphertextBlob=blob)

    def _ask(self, call: str, field: str, **sent: bytes) -> bytes:
        try:
            ask = getattr(self._client, call)
            return bytes(ask(KeyId=self._key, EncryptionContext=_CONTEXT, **sent)[field])
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            raise KeyServiceFailed(f"KMS refused ({code})") from None
        except BotoCoreError as error:
            raise KeyServiceFailed(f"KMS failed ({type(error).__name__})") from None

"""HashiCorp Vault's transit engine as a key service. Imported only if it is configured."""

import base64

from hvac.exceptions import VaultError

from gateway.secrets.key_services import KeyServiceFailed, decoded
from gateway.secrets.vault import NOT_VAULT, VaultSession


class VaultTransit:
    """One key of a transit engine; wrapped text is Vault's own, `vault:vN:…`."""

    def __init__(self, session: VaultSession, key: str, mount: str) -> None:
        self._session = session
        self._key = key
        self._mount = mount

    def wrap(self, key: bytes) -> str:
        plaintext = base64.b64encode(key).decode()
        return self._ask("encrypt_data", "ciphertext", plaintext=plaintext)

    def unwrap(self, wrapped: str) -> bytes:
        return decoded(self._ask("decrypt_data", "plaintext", ciphertext=wrapped))

    def _ask(self, call: str, field: str, **sent: str) -> str:
        try:
            transit = self._session.signed_in().secrets.transit
            answer = getattr(transit, call)(name=self._key, mount_point=self._mount, **sent)
            return str(answer["data"][field])
        except (VaultError, OSError) as error:  # Errors of requests are OSErrors.
            raise KeyServiceFailed(f"Vault failed ({type(error).__name__})") from None
        except NOT_VAULT:
            raise KeyServiceFailed("what answers for Vault is not Vault") from None

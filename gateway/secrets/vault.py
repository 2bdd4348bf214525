"""Secrets in HashiCorp Vault: KV version 2, by AppRole, Kubernetes or a token.

A login is renewed when two thirds of its lease are over, and made anew if that fails or Vault says
that it is over; if neither is possible, it is used until it ends. A token from the settings counts
as a login too: Vault is asked how long it is good, and it is read again from its place. Only
`gateway.assembly.places` imports this module: hvac is optional.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import hvac
import requests
from hvac.exceptions import Forbidden, InvalidPath, VaultError
from requests.adapters import HTTPAdapter

from gateway.clock import Clock
from gateway.configuration.sections import VaultSettings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret


TIMEOUT_S = 5
ANSWER_BYTES_MAX = 512 * 1024
"""For one secret with all of its fields."""
_RENEW_AFTER = 2 / 3
REFUSED_S = 300.0
"""How long a refusal is believed that a new login did not change: Vault keeps every login until it
ends, and one at each reading would soon be more than it can hold."""
_FOREVER_S = float("inf")
NOT_VAULT = (KeyError, TypeError, AttributeError, ValueError)
"""Errors from answers in another form, such as the page of a proxy before it."""


class _Bounded(HTTPAdapter):
    """Refuses an answer that is longer than this: it would be held and decoded at once."""

    def send(self, *request: Any, **how: Any) -> requests.Response:
        answer = super().send(*request, **(how | {"stream": True}))
        said = answer.raw.read(ANSWER_BYTES_MAX + 1, decode_content=True)
        if len(said) > ANSWER_BYTES_MAX:
            answer.close()
            raise requests.ConnectionError("the answer is too long")
        answer.raw = BytesIO(said)
        return answer


class VaultSession:
    """One login, shared by all secrets of a Vault; its calls run in a thread, one at a time."""

    def __init__(
        self,
        settings: VaultSettings,
        clock: Clock,
        credential: Callable[[], Secret[str]],
    ) -> None:
        """`credential` reads the token or the AppRole's secret id, each time anew."""
        self._settings = settings
        self._clock = clock
        self._credential = credential
        session = requests.Session()
        # A plain-http address is on this machine; a proxy is not, and would read along.
        session.trust_env = urlsplit(settings.url).scheme != "http"
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Bounded())
        # A redirect would carry the token to wherever it points.
        self._client: Any = hvac.Client(
            session=session,
            url=settings.url,
            namespace=settings.namespace or None,
            timeout=TIMEOUT_S,
            allow_redirects=False,
        )
        self._turn = asyncio.Lock()
        self._refused_until_s: dict[str, float] = {}
        """Secrets that were also refused after a new login."""
        self._renew_at_s = -1.0
        self._ends_at_s = -1.0

    async def read(self, path: str, field: str) -> Secret[str]:
        """One field of a secret's newest version.

        Raises:
            SecretUnavailableError: no answer, no access, no such secret or field.
        """
        async with self._turn:
            return await asyncio.to_thread(self._read, path, field)

    def signed_in(self) -> Any:
        """The client with a valid login; blocks, and raises hvac's exceptions."""
        self._sign_in()
        return self._client

    def _read(self, path: str, field: str) -> Secret[str]:
        try:
            value = self._fields(path).get(field)
        except InvalidPath:
            raise SecretUnavailableError("Vault has no such secret") from None
        except Forbidden:
            raise SecretUnavailableError("Vault refuses access") from None
        except ConfigurationInvalid as error:
            raise SecretUnavailableError(f"what proves us to Vault {error.reason}") from None
        except (VaultError, OSError) as error:  # Errors of requests are OSErrors.
            raise SecretUnavailableError(f"Vault failed ({type(error).__name__})") from None
        except NOT_VAULT:
            raise SecretUnavailableError("what answers for Vault is not Vault") from None
        if not isinstance(value, str) or not value:
            raise SecretUnavailableError("the secret in Vault has no such field")
        return Secret(value)

    def _fields(self, path: str) -> dict[str, Any]:
        self._sign_in()
        try:
            found = self._fetch(path)
        except Forbidden:
            # The login may have been revoked early: once more with a new one.
            now_s = self._clock.monotonic_s()
            is_made = self._settings.auth != "token"  # A given token costs no login.
            if is_made and now_s < self._refused_until_s.get(path, now_s):
                raise
            self._log_in()
            self._refused_until_s[path] = now_s + REFUSED_S
            found = self._fetch(path)
        self._refused_until_s.pop(path, None)
        fields: dict[str, Any] = found["data"]["data"]
        return fields

    def _fetch(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._client.secrets.kv.v2.read_secret_version(
            path=path, mount_point=self._settings.mount, raise_on_deleted_version=True
        )
        return found

    def _sign_in(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._ends_at_s:
            self._log_in()
        elif now_s >= self._renew_at_s:
            # The credential may be valid for one login only, and gone from its place; the old login
            # stays valid until its end.
            with suppress(VaultError, ConfigurationInvalid, OSError):
                self._renew()

    def _renew(self) -> None:
        try:
            self._note_lease(self._client.auth.token.renew_self()["auth"])
        except VaultError:
            self._log_in()

    def _log_in(self) -> None:
        settings, auth = self._settings, self._client.auth
        if settings.auth == "token":
            self._client.token = self._credential().reveal()
            self._note_lease(self._lease_of_token())
            return
        if settings.auth == "kubernetes":
            answer = auth.kubernetes.login(
                role=settings.role,
                jwt=Path(settings.kubernetes_token_file).read_text(encoding="utf-8").strip(),
                mount_point=settings.auth_mount or "kubernetes",
            )
        else:
            answer = auth.approle.login(
                role_id=settings.role,
                secret_id=self._credential().reveal(),
                mount_point=settings.auth_mount or "approle",
            )
        self._note_lease(answer["auth"])

    def _lease_of_token(self) -> dict[str, Any]:
        """In the form of a login's answer; a token that may not look itself up is used as it is."""
        try:
            found = self._client.auth.token.lookup_self()["data"]
        except Forbidden:
            return {"lease_duration": 0}
        return {"lease_duration": found["ttl"], "renewable": found.get("renewable")}

    def _note_lease(self, auth: dict[str, Any]) -> None:
        now_s, lease_s = self._clock.monotonic_s(), float(auth["lease_duration"])
        if not lease_s:
            self._renew_at_s = self._ends_at_s = _FOREVER_S
            return
        self._ends_at_s = now_s + lease_s
        self._renew_at_s = now_s + lease_s * _RENEW_AFTER if auth.get("renewable") else _FOREVER_S


class VaultPlace:
    """`path#field`, see `gateway.secrets.keeper.SecretPlace`."""

    def __init__(self, session: VaultSession, reference: str) -> None:
        self._session = session
        self._path, _, field = reference.partition("#")
        self._field = field or "value"

    async def read(self) -> Secret[str]:
        return await self._session.read(self._path, self._field)

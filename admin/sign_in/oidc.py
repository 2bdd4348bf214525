"""Sign-in by an OpenID provider: code flow with PKCE, the identity token checked in full.

Addresses come from the settings and from the provider's own discovery document. Answers are
bounded, redirects are not followed, and only asymmetric signatures of the provider's published keys
count. A pending sign-in is sealed in the browser that began it (`begun.py`).

Signing out there as well is only offered (RP-Initiated Logout 1.0): our own session has ended by
then, so a provider that has no such address, or does not answer, holds nobody up. The address names
the session by its identity token (`id_token_hint`), so it waits here for the browser that was told
to go there, and appears in no page.

A provider that knows the browser vouches without asking anybody. So it has to say when it last
asked, and people count as proved from that moment, not from the sign-in.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from typing import Any
from urllib.parse import quote, urlencode, urljoin

import aiohttp
import jwt
import msgspec
from msgspec import Struct

from admin.sign_in.begun import FAILED, Begun, BegunSignIns
from admin.sign_in.groups import groups_in
from admin.sign_in.provider_addresses import is_of_provider
from gateway.clock import Clock
from gateway.configuration.sections import OidcSettings
from gateway.errors import Unauthenticated
from gateway.secrets.issuer_keys import KeysRefused, key_set
from gateway.secrets.secret import Secret
from gateway.store.identity.provided_sessions import Vouching
from gateway.telemetry import Event, logger


ANSWER_BYTES_MAX = 256 * 1024
LEEWAY_S = 60
ASKED_WITHIN_S = 12 * 3600
"""Who proved themselves to the provider longer ago is asked again; so long a session is at most."""
TIMEOUT = aiohttp.ClientTimeout(total=10)
LEAVING_FOR_S = 60.0
LEAVING_MAX = 1000
"""So long the address of a sign-out there waits for the browser."""
KEYS_WITHIN_S = 10.0
END_WITHIN_S = 2.0
"""So long a sign-out waits at most for the provider's address."""
_CALLED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_END = "end_session_endpoint"


class Vouched(Struct, frozen=True):
    """Whom the provider vouches for."""

    subject: str
    """`ISSUER|SUBJECT`: a subject alone means nothing without who said it."""
    name: str
    proved_ago_s: float | None
    """So long ago they proved it, by the provider's clock; None where it does not say."""
    vouching: Vouching
    former: Secret[str]
    """The session that is replaced by the one that begins now; empty for none."""
    to: str = ""
    """The page of ours that was wanted; empty for none."""
    groups: frozenset[str] = frozenset()
    """In which they are there; none are read while the settings map none."""


class OpenIdClient:
    """The client of one provider; closed by its owner."""

    def __init__(
        self,
        settings: OidcSettings,
        secret: Secret[str] | None,
        clock: Clock,
        redirect_url: str,
        *,
        pepper: bytes,
    ) -> None:
        """`secret` is what the provider knows us by, `pepper` seals what browsers carry for us."""
        self._settings = settings
        self._secret = secret
        self._clock = clock
        self._redirect_url = redirect_url
        self._ends_at: str | None = None
        self._told: set[str] = set()
        """Of which addresses the operator was told that they are not called."""
        self._begun = BegunSignIns(settings.issuer, settings.client_id, pepper, clock)
        self._leaving: dict[str, tuple[float, Secret[str]]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def begin(self, *, anew: bool = False, former: str = "", to: str = "") -> tuple[str, str]:
        """Where to send the browser, and the name that it must bring back in a cookie.

        `anew` has the provider ask them again, also when it knows the browser. `former` is the
        session that it has now, `to` the page of ours that is wanted: it waits in the cookie, and
        stands in no address of the provider's.
        """
        provider = await self._discover()
        begun = Begun(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            former=Secret(former),
            to=to,
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_url,
            "scope": self._settings.scope,
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge.rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            # Asked for a greatest age, a provider must say how old the proof is (Core, 3.1.2.1).
            **({"max_age": "0", "prompt": "login"} if anew else {"max_age": str(ASKED_WITHIN_S)}),
        }
        joint = "&" if "?" in provider["authorization_endpoint"] else "?"
        return f"{provider['authorization_endpoint']}{joint}{urlencode(query)}", self._begun.sealed(
            begun
        )

    async def finish(self, ticket: str, state: str, code: str, iss: str = "") -> Vouched:
        """Exchange the code and check the identity token; `iss` is who says that it sends it.

        Raises:
            GroupsUnread: the token does not say which groups they are in.
            Unauthenticated: with the same words whatever else was wrong.
        """
        if not code or iss not in ("", self._settings.issuer):  # A mix-up of providers: RFC 9207.
            raise Unauthenticated(FAILED)
        with self._begun.finishing(ticket, state) as begun:
            return await self._exchanged(begun, code)

    async def _exchanged(self, begun: Begun, code: str) -> Vouched:
        provider = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "client_id": self._settings.client_id,
            "code_verifier": begun.verifier,
        }
        answer = await self._ask("POST", provider["token_endpoint"], form)
        id_token = str(answer.get("id_token", ""))
        claims = await self._claims(provider, id_token)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), begun.nonce.encode()):
            raise Unauthenticated(FAILED)
        subject, sid = f"{claims['iss']}|{claims['sub']}", claims.get("sid")
        # Whoever has no name at the provider would be one person with all others who have none.
        if not claims["sub"] or not subject.isprintable():
            raise Unauthenticated(FAILED)
        name = claims.get("name") or claims.get("email") or claims["sub"]
        vouching = Vouching(
            subject,
            f"{claims['iss']}|{sid}" if isinstance(sid, str) and sid else "",
            round(float(claims["iat"]) * 1_000_000),
            Secret(id_token),
        )
        # People may write there what they like: nothing that no database keeps.
        title = "".join(filter(str.isprintable, str(name)))[:200]
        groups = frozenset[str]()
        if self._settings.group_roles:
            groups = groups_in(claims, self._settings.groups_claim)
        ago_s = _proved_ago_s(claims)
        return Vouched(subject, title, ago_s, vouching, begun.former, begun.to, groups)

    async def leave(self, id_token: Secret[str]) -> str:
        """Have the browser end its session at the provider too: a name to come for the address by.

        Empty where there is no such address. `id_token` may be empty: the provider asks then.
        """
        url = await self._end_url(id_token.reveal())
        if not url:
            return ""
        now_s = self._clock.monotonic_s()
        self._leaving = {
            name: kept for name, kept in self._leaving.items() if now_s - kept[0] <= LEAVING_FOR_S
        }
        while len(self._leaving) >= LEAVING_MAX:
            del self._leaving[next(iter(self._leaving))]
        ticket = secrets.token_urlsafe(32)
        self._leaving[ticket] = (now_s, Secret(url))
        return ticket

    def way_out(self, ticket: str) -> str:
        """The address for whom it waits, once; empty for anybody else."""
        since_s, url = self._leaving.pop(ticket, (0.0, Secret("")))
        return url.reveal() if self._clock.monotonic_s() - since_s <= LEAVING_FOR_S else ""

    async def keys(self) -> bytes:
        """What the provider publishes now of the keys that it signs with.

        Raises:
            Unauthenticated: it does not say.
        """
        try:
            async with asyncio.timeout(KEYS_WITHIN_S):
                provider = await self._discover()
                return await self._fetched("GET", provider["jwks_uri"])
        except TimeoutError:
            raise Unauthenticated(FAILED) from None

    async def _end_url(self, id_token: str) -> str:
        if self._ends_at is None:
            try:
                async with asyncio.timeout(END_WITHIN_S):
                    await self._discover()
            except (Unauthenticated, TimeoutError):
                return ""
        if not self._ends_at:
            return ""
        back_to = urljoin(self._redirect_url, "/sign-in")
        query = {"client_id": self._settings.client_id, "post_logout_redirect_uri": back_to}
        query |= {"id_token_hint": id_token} if id_token else {}
        joint = "&" if "?" in self._ends_at else "?"
        return f"{self._ends_at}{joint}{urlencode(query)}"

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _claims(self, provider: dict[str, str], token: str) -> dict[str, Any]:
        published = await self._fetched("GET", provider["jwks_uri"])
        try:
            header = jwt.get_unverified_header(token)
            algorithm = str(header.get("alg"))
            key = key_set(published).named(header.get("kid"), algorithm)
            if key is None:
                raise Unauthenticated(FAILED)
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.client_id,
                issuer=self._settings.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub", "nonce"]},
            )
        except (KeysRefused, jwt.PyJWTError, ValueError):
            raise Unauthenticated(FAILED) from None
        # Of several parties that a token is for, it says which one asked for it.
        audience = claims["aud"]
        is_shared = isinstance(audience, list) and len(audience) > 1
        asked_by = claims.get("azp", "" if is_shared else self._settings.client_id)
        if asked_by != self._settings.client_id:
            raise Unauthenticated(FAILED)
        return claims

    async def _discover(self) -> dict[str, str]:
        issuer = self._settings.issuer
        found = await self._ask("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise Unauthenticated(FAILED)
        self._ends_at = self._address(found, _END) if found.get(_END) else ""
        addresses = {name: self._address(found, name) for name in _CALLED}
        if not all(addresses.values()):
            raise Unauthenticated(FAILED)
        return addresses

    def _address(self, found: dict[str, Any], name: str) -> str:
        """What the provider names so; empty, and said to the operator, where it is not called."""
        url = found.get(name)
        if isinstance(url, str) and is_of_provider(
            url, self._settings.issuer, self._settings.hosts
        ):
            return url
        reason = f"its {name} is of another host (see oidc.hosts), or no https address"
        if name not in self._told:  # Anybody may begin, as often as they like.
            self._told.add(name)
            logger().warning(Event.ADMIN_PROVIDER_REFUSED, component="admin", reason=reason)
        return ""

    async def _ask(
        self, method: str, url: str, form: dict[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(await self._fetched(method, url, form))
        except (msgspec.DecodeError, RecursionError):
            raise Unauthenticated(FAILED) from None
        if not isinstance(found, dict):
            raise Unauthenticated(FAILED)
        return found

    async def _fetched(self, method: str, url: str, form: dict[str, str] | None = None) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=TIMEOUT,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # Opened, a short answer may be a very long one.
            )
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        # What every provider takes when it says nothing else: RFC 6749, 2.3.1.
        if form is not None and self._secret:
            parts = (self._settings.client_id, self._secret.reveal())
            proof = ":".join(quote(part, safe="") for part in parts).encode()
            headers["authorization"] = f"Basic {base64.b64encode(proof).decode()}"
        try:
            async with self._session.request(
                method,
                url,
                data=form,
                allow_redirects=False,
                headers=headers,
            ) as answer:
                raw = await _whole(answer) if answer.status == 200 else b""  # noqa: PLR2004
        except (aiohttp.ClientError, TimeoutError, OSError):
            raise Unauthenticated(FAILED) from None
        if not raw:
            raise Unauthenticated(FAILED)
        return raw


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    """All of an answer, which may come in pieces; nothing of one that is too long."""
    raw = bytearray()
    async for piece in answer.content.iter_any():
        raw += piece
        if len(raw) > ANSWER_BYTES_MAX:
            return b""
    return bytes(raw)


def _proved_ago_s(claims: dict[str, Any]) -> float | None:
    """Between two times of one clock, so that it does not matter which of us has the right one."""
    asked_s, issued_s = claims.get("auth_time"), claims["iat"]
    if isinstance(asked_s, bool) or not isinstance(asked_s, int | float):
        return None
    return max(0.0, float(issued_s) - asked_s)

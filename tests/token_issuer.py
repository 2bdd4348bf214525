"""A token issuer on a real socket: it publishes its keys, signs with them, and can misbehave.

It stands for a cluster or an identity provider. Tokens are signed by `cryptography` and PyJWT's
signers; tokens that must be refused are put together by hand here.
"""

import base64
import json
import ssl
from typing import Any, Final, Self

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from gateway.clock import SystemClock


AUDIENCE: Final = "gatewright"
SUBJECT: Final = "system:serviceaccount:payments:assistant"
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def curve_key(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP256R1())


def algorithm_of(key: Private) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "EdDSA"
    return {"secp256r1": "ES256", "secp384r1": "ES384"}[key.curve.name]


def published(kid: str | None, key: Private, **more: Any) -> dict[str, Any]:
    """A key as an issuer publishes it."""
    found: dict[str, Any] = json.loads(
        get_default_algorithms()[algorithm_of(key)].to_jwk(key.public_key())
    )
    found.pop("key_ops", None)
    return found | {"use": "sig"} | ({} if kid is None else {"kid": kid}) | more


def part(value: object) -> str:
    """A part of a token, from JSON or from its text."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def signed(header: object, claims: object, key: Any, algorithm: str = "") -> str:
    """A token of these two parts, however wrong they are."""
    text = f"{part(header)}.{part(claims)}"
    signer = get_default_algorithms()[algorithm or algorithm_of(key)]
    return f"{text}.{part(signer.sign(text.encode(), signer.prepare_key(key)))}"


class TokenIssuer:
    """An asynchronous context manager: it publishes while it is entered."""

    def __init__(self, **keys: Private) -> None:
        self.keys: dict[str, Private] = keys or {"k1": rsa_key()}
        self.tls: ssl.SSLContext | None = None
        self.answer: web.Response | None = None
        """The response that replaces the keys."""
        self.asked = 0
        self.url = ""
        self.clock = SystemClock()

    @property
    def issuer(self) -> str:
        return "https://issuer.example.com"

    @property
    def jwks(self) -> bytes:
        return json.dumps(
            {"keys": [published(kid, key) for kid, key in self.keys.items()]}
        ).encode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        """The claims of a good token; those set to None are left out."""
        now_s = self.clock.utc_us() // 1_000_000
        whole = {
            "iss": self.issuer,
            "sub": SUBJECT,
            "aud": AUDIENCE,
            "iat": now_s,
            "exp": now_s + 600,
        }
        return {name: value for name, value in (whole | changes).items() if value is not None}

    def token(self, kid: str = "", **changes: Any) -> str:
        kid = kid or next(iter(self.keys))
        key = self.keys[kid]
        return jwt.encode(self.claims(**changes), key, algorithm_of(key), headers={"kid": kid})

    def settings(self, name: str = "cluster", more: str = "") -> str:
        """The section of a gateway that trusts it."""
        return f"""
[callers.issuers.{name}]
issuer = "{self.issuer}"
audience = "{AUDIENCE}"
jwks_url = "{self.url}/.well-known/jwks.json"
{more}
"""

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_get("/{anything:.*}", self._say)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls)
        await site.start()
        scheme = "http" if self.tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _say(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.answer is not None:
            return web.Response(
                status=self.answer.status, body=self.answer.body, headers=self.answer.headers
            )
        return web.Response(body=self.jwks, content_type="application/json")

"""Recording fakes of clouds: Amazon Bedrock that checks signatures, Vertex AI, a token server.

They check as the clouds do, with botocore and PyJWT on this side, and refuse as the clouds do: with
everything that a caller of the gateway must not see.
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qs

import jwt
import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec import structs

from tests.upstreams import RecordedRequest, RecordingUpstream, _write_whole


ACCOUNT: Final = "123456789012"
ROLE: Final = f"arn:aws:iam::{ACCOUNT}:role/gateway-of-a-bank"
PROJECT: Final = "bank-claude-prod"
SKEW_S: Final = 300
AUDIENCE: Final = "https://oauth2.googleapis.com/token"
"""The audience that google-auth signs, whatever address it sends to."""
_FORM: Final = "%Y%m%dT%H%M%SZ"


class _Cloud(RecordingUpstream, ABC):
    """Looks at each request before it is answered."""

    @abstractmethod
    def refusal(self, request: RecordedRequest) -> tuple[int, object] | None:
        """Status and body if it is to be refused."""

    def as_messages(self, request: RecordedRequest) -> RecordedRequest:
        """The request as Anthropic's own API would have received it."""
        return request

    def looked_up(self, path: str) -> object | None:
        """The answer to a GET of ours."""
        del path
        return None

    async def _reply(self, request: RecordedRequest, reader: Any, writer: Any) -> None:
        refused = self.refusal(request)
        if refused is not None:
            status, tree = refused
            _write_whole(writer, status, msgspec.json.encode(tree), ())
            await writer.drain()
            return
        found = self.looked_up(request.path) if request.method == "GET" else None
        if found is not None:
            _write_whole(writer, 200, msgspec.json.encode(found), (("Metadata-Flavor", "Google"),))
            await writer.drain()
            return
        await super()._reply(self.as_messages(request), reader, writer)


class BedrockUpstream(_Cloud):
    """Amazon Bedrock's endpoint of one region."""

    def __init__(self, region: str = "eu-central-1", service: str = "bedrock-mantle") -> None:
        super().__init__()
        self.region, self.service = region, service
        self.access_keys: dict[str, Credentials] = {}
        self.api_keys: set[str] = set()
        self.ahead_s = 0.0
        """How far this cloud's clock is ahead of ours, in seconds."""

    def new_access_key(self, *, is_temporary: bool = False) -> Credentials:
        """An access key that is accepted from now on."""
        token = secrets.token_urlsafe(48) if is_temporary else None
        key = Credentials(f"AKIA{secrets.token_hex(8).upper()}", secrets.token_urlsafe(30), token)
        self.access_keys[key.access_key] = key
        return key

    def new_api_key(self) -> str:
        key = f"bedrock-api-key-{secrets.token_urlsafe(24)}"
        self.api_keys.add(key)
        return key

    def refusal(self, request: RecordedRequest) -> tuple[int, object] | None:
        told = request.headers.get("authorization", "")
        if told.startswith("Bearer "):
            is_known = told.removeprefix("Bearer ") in self.api_keys
            return None if is_known else _aws(403, "UnrecognizedClientException", "No such API key")
        if not told.startswith("AWS4-HMAC-SHA256 "):
            return _aws(403, "MissingAuthenticationTokenException", "Missing token")
        pieces = dict(
            each.split("=", 1) for each in told.removeprefix("AWS4-HMAC-SHA256 ").split(", ")
        )
        key_id, _, region, service, _ = pieces["Credential"].split("/")
        known = self.access_keys.get(key_id)
        if known is None or request.headers.get("x-amz-security-token") != known.token:
            message = f"The security token included in the request is invalid. {ROLE} {key_id}"
            return _aws(403, "UnrecognizedClientException", message)
        signed_s = datetime.strptime(request.headers["x-amz-date"], _FORM).replace(tzinfo=UTC)
        if abs(signed_s.timestamp() - (time.time() + self.ahead_s)) > SKEW_S:
            now = request.headers["x-amz-date"]
            return _aws(403, "InvalidSignatureException", f"Signature expired: {now} is earlier")
        expected = _computed(request, known, region, service, pieces["SignedHeaders"], self.port)
        if (region, service) != (self.region, self.service) or expected != pieces["Signature"]:
            token = request.headers.get("x-amz-security-token", "")
            message = f"The request signature we calculated does not match. {key_id} {token}"
            return _aws(403, "SignatureDoesNotMatch", message)
        return None


def _computed(
    request: RecordedRequest, key: Credentials, region: str, service: str, signed: str, port: int
) -> str:
    """The signature that this request must have, from its headers and body as they arrived."""
    named = signed.split(";")
    assert {"host", "x-amz-date"} <= set(named)
    headers = {name: request.headers[name] for name in named}
    made = AWSRequest(
        request.method, f"http://127.0.0.1:{port}{request.path}", headers, request.body
    )
    made.context["timestamp"] = request.headers["x-amz-date"]
    auth = SigV4Auth(key, service, region)
    return str(auth.signature(auth.string_to_sign(made, auth.canonical_request(made)), made))


def _aws(status: int, kind: str, message: str) -> tuple[int, object]:
    return status, {"__type": f"com.amazon.coral.service#{kind}", "message": message}


class VertexUpstream(_Cloud):
    """Vertex AI in one region, for one project."""

    def __init__(self, region: str = "europe-west4") -> None:
        super().__init__()
        self.place = f"/v1/projects/{PROJECT}/locations/{region}"
        self.tokens: set[str] = set()

    def refusal(self, request: RecordedRequest) -> tuple[int, object] | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            return _google(401, "UNAUTHENTICATED", f"Invalid credentials for {self.place}: {token}")
        if request.method == "GET" and request.path != self.place:
            return _google(403, "PERMISSION_DENIED", f"Denied on resource //{request.path}")
        models = f"{self.place}/publishers/anthropic/models/"
        if request.method == "POST" and not request.path.startswith(models):
            return _google(403, "PERMISSION_DENIED", f"Denied on resource //{request.path}")
        return None

    def as_messages(self, request: RecordedRequest) -> RecordedRequest:
        model, _, asked = request.path.rpartition("/")[2].partition(":")
        tree = request.json
        assert tree.pop("anthropic_version")
        if model == "count-tokens":
            assert asked == "rawPredict"
            return structs.replace(request, path="/v1/messages/count_tokens")
        assert "model" not in tree
        assert asked == ("streamRawPredict" if tree.get("stream") else "rawPredict")
        body = msgspec.json.encode({"model": model, **tree})
        return structs.replace(request, path="/v1/messages", body=body)

    def looked_up(self, path: str) -> object | None:
        return {"name": path} if path == self.place else None


def _google(status: int, word: str, message: str) -> tuple[int, object]:
    return status, {"error": {"code": status, "status": word, "message": message}}


@cache
def _key() -> rsa.RSAPrivateKey:
    """One key for all servers of a process: making one takes a third of a second."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class TokenServer(_Cloud):
    """Google's token endpoint for keys of service accounts, and a machine's metadata server."""

    def __init__(self, upstream: VertexUpstream) -> None:
        super().__init__()
        self._upstream = upstream
        self._key = _key()
        self.lasts_s = 3600
        self.is_down = False
        self.says_nothing = False
        """Whether the metadata server answers as if all were well, but gives no token."""
        self.email = f"gateway@{PROJECT}.iam.gserviceaccount.com"
        self.given: list[str] = []

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def key(self, **more: str) -> str:
        """The key of a service account, as Google gives it out."""
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        told = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": self.email,
            "token_uri": self.token_url,
        }
        return msgspec.json.encode(told | more).decode()

    def refusal(self, request: RecordedRequest) -> tuple[int, object] | None:
        if self.is_down:
            return 503, {"error": "unavailable", "error_description": self.email}
        if request.method == "GET":
            is_meant = request.headers.get("metadata-flavor") == "Google"
            return None if is_meant else (403, {"error": "no"})
        asked = parse_qs(request.body.decode())
        try:
            claims = jwt.decode(
                asked["assertion"][0],
                self._key.public_key(),
                algorithms=["RS256"],
                audience=AUDIENCE,
                issuer=self.email,
            )
        except jwt.InvalidTokenError:
            return 400, {"error": "invalid_grant"}
        assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        return 200, self._new_token()

    def looked_up(self, path: str) -> object | None:
        asked = path.partition("?")[0].rstrip("/")
        if asked.endswith("/token"):
            return {} if self.says_nothing else self._new_token()
        account = {
            "email": self.email,
            "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
        }
        return account if asked.endswith("/default") else {}

    def _new_token(self) -> Mapping[str, object]:
        token = f"ya29.{secrets.token_urlsafe(40)}"
        self._upstream.tokens.add(token)
        self.given.append(token)
        return {"access_token": token, "expires_in": self.lasts_s, "token_type": "Bearer"}

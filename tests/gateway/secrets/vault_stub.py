"""A stand-in for HashiCorp Vault that keeps the parts of its HTTP API which hvac asks us for.

AppRole and Kubernetes login, `lookup-self`, `renew-self`, KV version 2 reads, transit's encrypt and
decrypt, with leases that end and tokens that can be revoked:
https://developer.hashicorp.com/vault/api-docs. No server of the real thing can be had in the test
environment; hvac is the official client and is what speaks to it.
"""

import base64
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class VaultStub:
    """Runs on loopback in a thread; its clock is the caller's, so that leases end when told."""

    def __init__(self) -> None:
        self.role_id, self.secret_id = "role", secrets.token_hex(8)
        self.service_account = secrets.token_hex(8)
        self.transit: dict[str, list[AESGCM]] = {}
        """Versions of each transit key, oldest first."""
        self.transit_mount = "transit"
        self.kv: dict[str, dict[str, Any]] = {}
        self.now_s = 0.0
        self.lease_s = 60
        """0 for a login without end."""
        self.is_renewable = True
        self.namespaces: set[str | None] = set()
        self.tokens: dict[str, float] = {}
        self.forbidden: set[str] = set()
        """Secrets that no policy lets anybody read."""
        self.asked: list[str] = []
        self.is_sealed = False
        self.instead: tuple[int, bytes] | None = None
        """What is answered whatever was asked, with `location` where that is not empty."""
        self.location = ""
        self.renewals_left = 10**9
        self.may_look_itself_up = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, token: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        if self.is_sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if path == "/v1/auth/approle/login":
            good = (body.get("role_id"), body.get("secret_id")) == (self.role_id, self.secret_id)
            return self._login(good=good)
        if path == "/v1/auth/kubernetes/login":
            return self._login(good=body.get("jwt") == self.service_account)
        if self.tokens.get(token, -1.0) <= self.now_s:
            return 403, {"errors": ["permission denied"]}
        if path.startswith("/v1/auth/token/"):
            return self._of_itself(token, is_lookup=path.endswith("/lookup-self"))
        if path.startswith(mount := f"/v1/{self.transit_mount}/"):
            return self._transit(path.removeprefix(mount), body)
        return self._read(path.removeprefix("/v1/secret/data/"))

    def _of_itself(self, token: str, *, is_lookup: bool) -> tuple[int, Any]:
        if is_lookup and self.may_look_itself_up:
            left_s = self.tokens[token] - self.now_s
            ttl = 0 if left_s == float("inf") else round(left_s)
            return 200, {"data": {"id": token, "ttl": ttl, "renewable": self.is_renewable}}
        if is_lookup:
            return 403, {"errors": ["permission denied"]}
        if self.renewals_left <= 0:
            return 400, {"errors": ["lease is not renewable"]}
        self.renewals_left -= 1
        self.tokens[token] = self.now_s + (self.lease_s or float("inf"))
        return 200, {"auth": self._auth(token)}

    def _read(self, name: str) -> tuple[int, Any]:
        if name in self.forbidden:
            return 403, {"errors": ["permission denied"]}
        if name not in self.kv:
            return 404, {"errors": []}
        return 200, {"data": {"data": self.kv[name], "metadata": {"version": 1}}}

    def _transit(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """`encrypt/NAME` and `decrypt/NAME`; the newest version of a key encrypts."""
        verb, _, name = path.partition("/")
        versions = self.transit.get(name, [])
        if verb == "encrypt" and versions:
            nonce = secrets.token_bytes(12)
            sealed = versions[-1].encrypt(nonce, base64.b64decode(body["plaintext"]), None)
            text = base64.b64encode(nonce + sealed).decode()
            return 200, {"data": {"ciphertext": f"vault:v{len(versions)}:{text}"}}
        if verb == "decrypt":
            try:
                _, version, text = body["ciphertext"].split(":")
                raw = base64.b64decode(text)
                plain = versions[int(version[1:]) - 1].decrypt(raw[:12], raw[12:], None)
            except (IndexError, InvalidTag, ValueError):
                return 400, {"errors": ["cipher: message authentication failed"]}
            return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}
        return 404, {"errors": []}

    def _login(self, *, good: bool) -> tuple[int, Any]:
        if not good:
            return 400, {"errors": ["invalid role or secret ID"]}
        token = f"hvs.{secrets.token_hex(8)}"
        self.tokens[token] = self.now_s + (self.lease_s or float("inf"))
        return 200, {"auth": self._auth(token)}

    def _auth(self, token: str) -> dict[str, Any]:
        return {
            "client_token": token,
            "lease_duration": self.lease_s,
            "renewable": self.is_renewable,
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                path = self.path.partition("?")[0]
                token = self.headers.get("x-vault-token") or ""
                stub.namespaces.add(self.headers.get("x-vault-namespace"))
                if stub.instead is None:
                    status, answer = stub.answer(self.command, path, token, body)
                    raw = json.dumps(answer).encode()
                else:
                    status, raw = stub.instead
                self.send_response(status)
                if stub.location:
                    self.send_header("location", stub.location)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_PUT = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

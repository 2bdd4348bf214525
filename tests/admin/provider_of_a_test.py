"""An OpenID provider with real keys whose every token a test can make up, on a real socket."""

import threading
from collections.abc import Callable
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa

from gateway.clock import Clock, SystemClock


CLIENT = "gatewright"
PEPPER = b"what seals sign-ins under way, of a test"


class Liar:
    """A provider whose identity token a test makes up."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.other_key = rsa.generate_private_key(65537, 2048)
        self.key_id = "1"
        self.published: list[dict[str, Any]] | None = None
        """Its keys, where they are not the usual one."""
        self.forge: Callable[[dict[str, Any]], str] = self.honest
        self.verifier = self.challenge = self.nonce = ""
        self.more: dict[str, object] = {}
        self.asked: list[str] = []
        """Every path, in order."""
        self.clock: Clock = SystemClock()
        """By which it says when somebody signed in; their sign-outs are told by the same."""
        self.elsewhere: dict[str, str] = {}
        """Paths that lead to another address, and to which."""
        self.pieces = 1
        """So many its answers come in."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def claims(self) -> dict[str, Any]:
        now_s = self.clock.utc_us() // 1_000_000
        return {
            "iss": self.issuer,
            "sub": "ann",
            "aud": CLIENT,
            "iat": now_s,
            "exp": now_s + 300,
            "nonce": self.nonce,
        }

    def honest(self, claims: dict[str, Any]) -> str:
        return jwt.encode(claims, self.key, "RS256", headers={"kid": self.key_id})

    def public_key(self) -> dict[str, Any]:
        """As it is published."""
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answers(self, path: str, form: dict[str, list[str]]) -> dict[str, Any]:
        self.asked.append(path)
        if path.endswith("openid-configuration"):
            return {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            } | self.more
        if path == "/keys":
            return {"keys": [self.public_key()] if self.published is None else self.published}
        self.verifier = form["code_verifier"][0]
        return {"id_token": self.forge(self.claims())}

    def _asks(self, path: str) -> str:
        """Its page for a browser: it asks who they are, and leads back."""
        asked = {name: each[0] for name, each in parse_qs(urlsplit(path).query).items()}
        self.nonce = asked["nonce"]
        back = f"{asked['redirect_uri']}?{urlencode({'code': 'c', 'state': asked['state']})}"
        link = f"<a href='{escape(back)}'>It is me</a>"
        return f"<!doctype html><title>Provider</title><link rel='icon' href='data:,'>{link}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                form = parse_qs(self.rfile.read(length).decode())
                if self.path.startswith("/authorize?"):
                    self._send("text/html", liar._asks(self.path).encode())
                    return
                raw = msgspec.json.encode(liar._answers(self.path, form))
                onward = liar.elsewhere.get(self.path, "")
                self.send_response(307 if onward else 200)
                if onward:
                    self.send_header("location", onward)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(raw)))
                self.send_header("connection", "close")
                self.end_headers()
                size = -(-len(raw) // liar.pieces)
                for start in range(0, len(raw), size):
                    self.wfile.write(raw[start : start + size])
                    self.wfile.flush()
                    if liar.pieces > 1:
                        # Long enough for a piece to arrive by itself.
                        threading.Event().wait(0.05)

            def _send(self, kind: str, raw: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(raw)))
                self.send_header("connection", "close")
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

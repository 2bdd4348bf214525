"""Calls an operator's web hook, named in the settings, through the one egress."""

from collections.abc import Mapping

from msgspec import Struct

from gateway.errors import ConfigurationInvalid, GatewrightError
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.reply import EgressReply
from gateway.providers.egress.way_out import WayOut
from gateway.providers.outlets.signing import Signer
from gateway.secrets.secret import Secret


DEADLINE_S = 10.0
_OK = 2
_SECRET_CHARS_MIN = 6
"""Shorter words also occur within other words."""


class Approach(Struct, frozen=True):
    """How an outside place is reached, and what it requires with each message."""

    headers: Mapping[str, Secret[str]] = {}
    way_out: WayOut | None = None


class WebHook:
    """One address that takes JSON; its name in errors is the settings' section."""

    def __init__(
        self,
        name: str,
        url: str,
        credential: Secret[str] | None,
        egress: Egress,
        *,
        allow_plain_http: bool = False,
        signer: Signer | None = None,
        approach: Approach | None = None,
        answer_bytes_max: int = 0,
    ) -> None:
        """Keeps `answer_bytes_max` of the answer to an accepted message, in `answer`.

        Raises:
            ConfigurationInvalid: the egress may not call the URL, or the credential cannot be sent.
        """
        approach = approach or Approach()
        endpoint = parse_endpoint(
            name, url, "operator", allow_plain_http=allow_plain_http, way_out=approach.way_out
        )
        secrets = dict(approach.headers)
        if credential:
            secrets["authorization"] = Secret(f"Bearer {credential.reveal()}")
        self.problem = ""
        """Why the last message was not accepted, in our own words; empty if it was."""
        self.retry_after_s: float | None = None
        """The pause that the receiver asked for when it did not accept the last message, if any."""
        self.status = 0
        """The status of the last answer; 0 if none came."""
        self.answer = b""
        """The answer to the last accepted message; empty if too long, compressed, or broken off."""
        self._answer_bytes_max = answer_bytes_max
        self._egress = egress
        self._signer = signer
        self._secrets = tuple(each for each in (credential, *approach.headers.values()) if each)
        try:
            self._route = egress.route(
                endpoint, "", {header: secret.reveal() for header, secret in secrets.items()}
            )
        except ValueError:
            reason = "is sent a credential that no header can hold"
            raise ConfigurationInvalid(f"providers.{name}", "base_url", reason) from None

    async def post(self, body: bytes, about: str = "") -> bool:
        """Whether it was accepted; `about` identifies its subject, if it may be sent again."""
        route, self.retry_after_s = self._route, None
        self.status, self.answer = 0, b""
        if self._signer is not None:
            route = route.with_headers(self._signer.headers(body, about))
        try:
            # A receiver that accepted it and compressed its answer has still accepted it.
            reply = await self._egress.tell(route, body, DEADLINE_S, may_be_coded=True)
        except GatewrightError as error:
            self.problem = error.message
            return False
        try:
            self.status, self.retry_after_s = reply.status, reply.retry_after_s
            is_taken = reply.status // 100 == _OK
            if is_taken and self._answer_bytes_max and not reply.is_coded:
                self.answer = await _whole(reply, self._answer_bytes_max)
        finally:
            await reply.close()
        self.problem = "" if is_taken else f"it answered with HTTP {reply.status}"
        return is_taken

    def without_secrets(self, text: str) -> str:
        """The receiver's text without our secrets."""
        whole = [secret.reveal() for secret in self._secrets]
        words = {*whole, *(word for each in whole for word in each.split())}
        # The longest first: one may begin as another does.
        for word in sorted(words, key=len, reverse=True):
            text = text.replace(word, "[removed]") if len(word) >= _SECRET_CHARS_MIN else text
        return text


async def _whole(reply: EgressReply, bytes_max: int) -> bytes:
    """A complete answer; the message stays accepted if it is too long or ends too soon."""
    pieces = bytearray()
    try:
        async for piece in reply.chunks():
            pieces += piece
            if len(pieces) > bytes_max:
                return b""
    except GatewrightError:
        return b""
    return bytes(pieces)

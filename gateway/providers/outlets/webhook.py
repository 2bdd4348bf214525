"""A web hook of the settings, called through the one egress: what operators want to be told."""

from gateway.errors import GatewrightError
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.outlets.signing import Signer
from gateway.secrets.secret import Secret


DEADLINE_S = 10.0
_OK = 2


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
    ) -> None:
        """Raises ConfigurationInvalid unless the URL is one that the egress may call."""
        endpoint = parse_endpoint(name, url, "operator", allow_plain_http=allow_plain_http)
        headers = {"authorization": f"Bearer {credential.reveal()}"} if credential else {}
        self.problem = ""
        """Why the last one was not taken, in words of ours; empty when it was."""
        self.retry_after_s: float | None = None
        """How long whoever did not take the last one wants to be left alone, if it said so."""
        self._egress = egress
        self._signer = signer
        self._route = egress.route(endpoint, "", headers)

    async def post(self, body: bytes, about: str = "") -> bool:
        """Whether it was taken; `about` names what is told, where it may be told again."""
        route, self.retry_after_s = self._route, None
        if self._signer is not None:
            route = route.with_headers(self._signer.headers(body, about))
        try:
            reply = await self._egress.tell(route, body, DEADLINE_S)
        except GatewrightError as error:
            self.problem = error.message
            return False
        try:
            is_taken = reply.status // 100 == _OK
            self.retry_after_s = reply.retry_after_s
        finally:
            await reply.close()
        self.problem = "" if is_taken else f"it answered with HTTP {reply.status}"
        return is_taken

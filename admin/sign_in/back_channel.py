"""Sign-outs that the OpenID provider sends us, server to server (Back-Channel Logout 1.0).

Anybody may send here, and only the provider's signature ends a session. Nothing but a token of
bounded length is read. Anything wrong with it is answered with 400 and logged in our own words, up
to a number per second: beyond that strangers are sent away in silence, and the provider is still
heard. A valid sign-out is recorded before anybody is signed out. One that finds nobody has not
failed.
"""

from typing import Any, Final
from urllib.parse import parse_qsl

from litestar import Response, post
from litestar.enums import MediaType
from litestar.exceptions import HTTPException

from admin.access import PUBLIC, recording, unkept
from admin.asking import Asking
from admin.services import Services
from admin.sign_in.logout_tokens import LogoutRefused, LogoutTokens
from admin.sign_in.oidc import OpenIdClient
from gateway.errors import Exhausted, GatewrightError, RequestInvalid
from gateway.oversight.access import PROVIDER
from gateway.pacing.flow import Flow
from gateway.secrets.issuer_keys import KEYS_FOR_S, IssuerKeys
from gateway.telemetry import Event, logger


PATH: Final = "/sign-out/openid"
BODY_BYTES_MAX: Final = 16 * 1024
FIELDS_MAX: Final = 8
AT_ONCE_MAX: Final = 100
PER_SECOND_MAX: Final = 20.0
PEOPLE_MAX: Final = 20
"""So many people are named in a record; one session of a provider's is one person's."""
HEARING: Final = unkept(recording(PUBLIC, "session.ended"))


def back_channel_routes(services: Services, openid: OpenIdClient) -> list[Any]:
    """The one route; there is none where people do not sign in by a provider."""
    clock = services.clock
    # A key that the provider withdrew is believed no longer, also while it does not answer.
    keys = IssuerKeys(openid.keys, clock, outage_s=KEYS_FOR_S)
    tokens = LogoutTokens(services.settings.oidc, keys, clock)
    # Only what is refused is counted: else a stranger's flood would silence the provider, and keep
    # a session alive that it ends.
    flow = Flow(clock, AT_ONCE_MAX, PER_SECOND_MAX)

    @post(
        PATH,
        opt=HEARING,
        status_code=200,
        request_max_body_size=BODY_BYTES_MAX,
        exception_handlers={HTTPException: _refused, GatewrightError: _refused},
    )
    async def hear(request: Asking) -> Response[None]:
        try:
            logout = await tokens.read(_token_in(request.content_type[0], await request.body()))
            people = await services.provided.whose(logout)
        except (HTTPException, RequestInvalid):
            if not flow.take():
                raise Exhausted("too many sign-outs at once", retry_after_s=1.0) from None
            raise
        whom = {"people": [*people[:PEOPLE_MAX]], "session": "one" if logout.sid else "all"}
        async with services.deeds.doing(PROVIDER, "session.ended", "", before=whom):
            count = await services.provided.end(logout)
        logger().info(Event.ADMIN_SIGNED_OUT_THERE, component="admin", count=count)
        return Response(None, status_code=200)

    return [hear]


def _token_in(media_type: str, body: bytes) -> str:
    """The one token of a form; raises LogoutRefused."""
    if media_type.lower() != "application/x-www-form-urlencoded":
        raise LogoutRefused("not a form")
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except ValueError:
        raise LogoutRefused("not a form") from None
    found = [value for name, value in fields if name == "logout_token"]
    if len(found) != 1:
        raise LogoutRefused("not one token")
    return found[0]


def _refused(_: Asking, error: Exception) -> Response[dict[str, str]]:
    """The standard's body (RFC 6749, 5.2); no word of what was sent is in it."""
    status, code, reason, headers = 400, "invalid_request", "not a form that is read here", {}
    if isinstance(error, Exhausted):
        status, reason, headers = error.http_status, error.message, {"retry-after": "1"}
    elif isinstance(error, RequestInvalid):
        # What is wrong with a field is told by the field's name, which somebody sent.
        reason = reason if error.parameter else error.message
    elif isinstance(error, GatewrightError):
        code, reason = "server_error", "it cannot be done now: send it again"
    if isinstance(error, GatewrightError) and status == 400:  # noqa: PLR2004
        # No line for what comes before, or beyond, the bound: a flood would fill the log.
        logger().warning(Event.ADMIN_LOGOUT_REFUSED, component="admin", reason=reason)
    return Response(
        {"error": code, "error_description": reason},
        status_code=status,
        media_type=MediaType.JSON,
        headers=headers,
    )

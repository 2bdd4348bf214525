"""The page behind an invitation: the guest chooses a password, and is signed in at once."""

from typing import Any, Final

from litestar import MediaType, Response, post, route
from litestar.response import Redirect

from admin.access import COOKIE, PUBLIC, recording
from admin.asking import Asking
from admin.forms import Form, form_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER, session_cookie
from gateway.errors import RequestInvalid, Unauthenticated
from gateway.secrets.passwords import checked_password
from gateway.secrets.secret import Secret
from gateway.store.identity.invitations import REFUSAL, Invitations
from gateway.telemetry import Event, logger


PATH: Final = "/invitation"
ACTOR: Final = "invitation"


def joining_routes(services: Services) -> list[Any]:
    """Public: whoever has the code is whom it was made for."""
    links, screens = Invitations(services.database, services.clock), services.screens

    def page(wrong: dict[str, str], status: int = 200) -> Response[str]:
        return screens.page("people/joining.html", status, wrong=wrong)

    @route(PATH, http_method=READING, media_type=MediaType.HTML, opt=PUBLIC)
    async def joining_page() -> Response[str]:
        return page({})

    @post(
        PATH,
        media_type=MediaType.HTML,
        status_code=SEE_OTHER,
        opt=recording(PUBLIC, "person.joined"),
    )
    async def join(request: Asking) -> Response[Any]:
        form: Form = await form_of(request)
        code = form.text("code")
        try:
            name = await links.whose(code)
        except Unauthenticated:
            # The code is not written down: it may be one of somebody else's.
            await services.refusals.note(ACTOR)
            return page({"code": REFUSAL}, 400)
        try:
            password = checked_password(Secret(form.raw("password")))
            async with services.deeds.doing(name, "person.joined", "", after={"person": name}):
                session_id = await links.redeem(code, password)
        except RequestInvalid as error:
            return page({error.parameter or "code": error.message}, 400)
        except Unauthenticated:
            return page({"code": REFUSAL}, 400)
        await services.deeds.record(name, "session.began", "")
        logger().info(Event.ADMIN_SIGNED_IN, component="admin")
        answer = Redirect("/", status_code=SEE_OTHER)
        await services.people.end(request.cookies.get(COOKIE, ""))
        answer.cookies.append(session_cookie(request, COOKIE, session_id, "strict"))
        return answer

    return [joining_page, join]

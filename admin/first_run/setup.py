"""The page behind a one-time link: it makes the first person, who is signed in at once."""

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
from gateway.store.identity.names import checked_name
from gateway.store.identity.setup_links import FIRST_ROLES, REFUSAL, SetupLinks
from gateway.telemetry import Event, logger


PATH: Final = "/setup"
ACTOR: Final = "setup-link"


def setup_routes(services: Services) -> list[Any]:
    """Public: whoever has the code is who it was printed for."""
    links, screens = SetupLinks(services.database, services.clock), services.screens

    async def page(form: Form, wrong: dict[str, str], status: int = 200) -> Response[str]:
        is_open = await links.is_open()
        return screens.page("first_run/setup.html", status, is_open=is_open, wrong=wrong, form=form)

    @route(PATH, http_method=READING, media_type=MediaType.HTML, opt=PUBLIC)
    async def setup_page() -> Response[str]:
        return await page(Form(), {})

    @post(
        PATH,
        media_type=MediaType.HTML,
        status_code=SEE_OTHER,
        opt=recording(PUBLIC, "person.added"),
    )
    async def set_up(request: Asking) -> Response[Any]:
        form = await form_of(request)
        name, code = form.text("name"), form.text("code")
        try:
            await links.require(code)
        except Unauthenticated:
            # Neither the code nor what was typed as a name is written down: they may be secrets.
            await services.refusals.note(ACTOR)
            return await page(form, {"code": REFUSAL}, 400)
        try:
            after = {"name": checked_name(name), "roles": list(FIRST_ROLES)}
            password = checked_password(Secret(form.raw("password")))
            async with services.deeds.doing(ACTOR, "person.added", "", after=after):
                await links.redeem(code, name, form.text("title"), password)
        except RequestInvalid as error:
            return await page(form, {error.parameter or "name": error.message}, 400)
        except Unauthenticated:
            return await page(form, {"code": REFUSAL}, 400)
        await services.deeds.record(name, "session.began", "")
        logger().info(Event.ADMIN_SIGNED_IN, component="admin")
        answer = Redirect("/first-run", status_code=SEE_OTHER)
        session_id = await services.people.begin(name)
        await services.people.end(request.cookies.get(COOKIE, ""))
        answer.cookies.append(session_cookie(request, COOKIE, session_id, "strict"))
        return answer

    return [setup_page, set_up]

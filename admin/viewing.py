"""The page of reading preferences (numbers, times, colours), kept in a cookie of the browser."""

from typing import Annotated, Any, Final
from zoneinfo import available_timezones

from babel import Locale
from litestar import MediaType, Response, post, route
from litestar.datastructures import Cookie
from litestar.enums import RequestEncodingType
from litestar.params import Body
from litestar.response import Redirect
from msgspec import Struct

from admin.access import SIGNED_IN, recording
from admin.asking import Asking
from admin.interrupted import is_own_path
from admin.preferences import COOKIE, LOCALES, THEMES, Preferences, cookie_of, is_zone
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.sign_in.protection import came_encrypted
from gateway.errors import RequestInvalid


KEPT_FOR_S: Final = 365 * 24 * 3600
OWN: Final = recording(SIGNED_IN, "nothing: a cookie of the browser's own")


class Ways(Struct, frozen=True):
    """The fields of the form, as a browser sends them."""

    locale: str = ""
    zone: str = ""
    currency: str = "USD"
    theme: str = "system"
    keys: str = "on"
    to: str = "/"


def viewing_routes(services: Services) -> list[Any]:
    """The page and where its form goes."""
    shell, currencies = services.shell, services.settings.currencies

    @route("/viewing", http_method=READING, media_type=MediaType.HTML, opt=SIGNED_IN)
    async def viewing(request: Asking) -> Response[str]:
        return await shell.page(
            request,
            "viewing.html",
            "viewing",
            locales=[(name, Locale.parse(name).get_display_name("en")) for name in LOCALES],
            zones=[(name, name) for name in sorted(available_timezones())],
            currencies=[(name, name) for name in ("USD", *sorted(currencies))],
        )

    @route("/words", http_method=READING, media_type=MediaType.HTML, opt=SIGNED_IN)
    async def words(request: Asking) -> Response[str]:
        return await shell.page(request, "words.html", "words")

    @post("/viewing", opt=OWN, status_code=SEE_OTHER)
    async def set_viewing(
        request: Asking,
        data: Annotated[Ways, Body(media_type=RequestEncodingType.URL_ENCODED)],
    ) -> Redirect:
        theme = next((known for known in THEMES if known == data.theme), None)
        if data.locale not in LOCALES or not is_zone(data.zone) or theme is None:
            raise RequestInvalid("this form is not complete")
        if data.currency != "USD" and data.currency not in currencies:
            raise RequestInvalid("no rate of this currency is configured", parameter="currency")
        chosen = Preferences(
            data.locale, data.zone, data.currency, theme, single_keys=data.keys != "off"
        )
        answer = Redirect(data.to if is_own_path(data.to) else "/", status_code=SEE_OTHER)
        answer.set_cookie(
            Cookie(
                COOKIE,
                value=cookie_of(chosen),
                path="/",
                max_age=KEPT_FOR_S,
                httponly=True,
                samesite="strict",
                secure=came_encrypted(request),
            )
        )
        return answer

    return [viewing, words, set_viewing]

"""Leads from an end user's name to the list of their requests, by the digest in records."""

from typing import Annotated, Any, Final
from urllib.parse import urlencode

from litestar import post
from litestar.enums import RequestEncodingType
from litestar.params import Body, FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.compliance.office import Office, in_words
from admin.services import Services
from admin.sign_in.pages import SEE_OTHER
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.oversight.searching import Filter, FilterInvalid, Term, parse, render


LISTS: Final = ("traffic", "audit")


class EndUserForm(Struct, frozen=True):
    """The form, as it was typed; the name of an end user is kept nowhere."""

    user: str = ""
    q: str = ""
    """What the list was asked for before."""
    list: str = LISTS[0]


Form = Annotated[EndUserForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def end_user_routes(_: Services, office: Office) -> list[Any]:
    """One route; it is sent as a form, because an address with a name in it would be kept."""
    searches = needs(Permission.CONTENT_ERASE, records="subject.searched")

    @post("/o/{organisation:str}/compliance/end-user", opt=searches)
    async def search(request: Asking, organisation: FromPath[str], data: Form) -> Redirect:
        if data.list not in LISTS:
            raise RequestInvalid(f"list: {', '.join(LISTS)}", parameter="list")
        with in_words():
            actor = session_of(request).person.name
            subject, _ = await office.search(actor, organisation, data.user)
        query = urlencode({"q": render(narrowed(data.q, subject))})
        return Redirect(f"/o/{organisation}/{data.list}?{query}", status_code=SEE_OTHER)

    return [search]


def narrowed(text: str, subject: str) -> Filter:
    """A filter's text with the records of one end user; what cannot be read of it is left out."""
    try:
        found = parse(text)
    except FilterInvalid:
        found = Filter()
    return Filter((*found.without("user").terms, Term("user", (subject,))))

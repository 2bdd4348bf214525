"""Keys over the JSON API: what the pages of keys show and do, typed in and out."""

from typing import Any, Final

from litestar import get, post
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.keys.filter import QUERY_LENGTH_MAX, key_search
from admin.keys.issuing import OVERLAP_S, KeyIssuer, KeyOrder
from admin.keys.reader import KeyDetail, KeyPage, KeyReader
from admin.queries import Query, after_of, first_of
from admin.services import Services
from gateway.oversight.access import Permission


NO_CONTENT: Final = 204
_P = Permission
FILTER: Final = Query(
    "q",
    "A filter of words and fields: `payroll state:live`; what is not understood is refused.",
    length_max=QUERY_LENGTH_MAX,
)
_PATH: Final = "/api/organisations/{organisation:str}/keys"
_KEY: Final = f"{_PATH}/{{key_id:str}}"


class Issued(Struct, frozen=True):
    """A key, the only time it is told."""

    key_id: str
    key: str
    """Empty where tokens of an issuer prove it."""


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the secret before stays good.

    A key has two secrets at most. While one that a rotation before left is still good, another
    rotation, such as the same one sent again, is refused (409), unless `ends_former` says that it
    ends now, or `secrets`, which is the key's field of that name as it was read; where the key has
    others by then, that is refused too.
    """

    overlap_s: int = OVERLAP_S
    secrets: str | None = None
    ends_former: bool = False


def key_api_routes(services: Services) -> list[Any]:
    """All routes; each says what it needs, and what it records."""
    reader, issuer = KeyReader(services), KeyIssuer(services)

    @get(_PATH, opt=needs(_P.KEYS_READ))
    async def list_keys(request: Asking, organisation: FromPath[str]) -> KeyPage:
        search = key_search(FILTER.of(request))
        return await reader.page(organisation, search, first_of(request), after=after_of(request))

    @get(_KEY, opt=needs(_P.KEYS_READ))
    async def show_key(organisation: FromPath[str], key_id: FromPath[str]) -> KeyDetail:
        return await reader.detail(organisation, key_id)

    @post(_PATH, opt=needs(_P.KEYS_ISSUE, records="key.issued"))
    async def issue_key(request: Asking, organisation: FromPath[str]) -> Issued:
        order = await body_of(request, KeyOrder)
        key = await issuer.issue(session_of(request).person, organisation, order)
        return Issued(key.key_id, "" if order.issuer else key.reveal())

    @post(f"{_KEY}/rotate", opt=needs(_P.KEYS_ISSUE, records="key.rotated"))
    async def rotate_key(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> Issued:
        order = await body_of(request, Rotation)
        line = await reader.line(organisation, key_id)
        person = session_of(request).person
        key = await issuer.rotate(
            person,
            organisation,
            line,
            order.overlap_s,
            order.secrets,
            ends_former=order.ends_former,
        )
        return Issued(key.key_id, key.reveal())

    @post(f"{_KEY}/revoke", opt=needs(_P.KEYS_ISSUE, records="key.revoked"), status_code=NO_CONTENT)
    async def revoke_key(
        request: Asking, organisation: FromPath[str], key_id: FromPath[str]
    ) -> None:
        line = await reader.line(organisation, key_id)
        await issuer.revoke(session_of(request).person, organisation, line)

    return [list_keys, show_key, issue_key, rotate_key, revoke_key]

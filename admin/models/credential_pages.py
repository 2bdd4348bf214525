"""The pages of credentials: the list, one of them, and setting, replacing and forgetting one.

A page that takes a secret never shows one: neither the one that is set nor what was just typed.
"""

from typing import Any, Final
from urllib.parse import quote

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of, unkept
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import Form, form_of
from admin.models.credentials import CredentialReader, Credentials
from admin.models.sealing import Forget, Sealed, Sealer, SealOrder
from admin.models.spares import SpareDesk, spare_routes
from admin.screens import CONFLICT
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.errors import Exhausted, RequestInvalid
from gateway.oversight.access import Permission
from gateway.secrets.secret import Secret
from gateway.store.sealing.sealed_secrets import SealedSecret


AT: Final = "/models/credentials"
API: Final = "/api/credentials"
NO_CONTENT: Final = 204
VERSION_MAX: Final = 10**12
_HTML: Final = MediaType.HTML
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_SETS: Final = needs(Permission.SECRETS_SET, "everywhere", records="secret.set")
_FORGETS: Final = needs(Permission.SECRETS_SET, "everywhere", records="secret.removed")


class SecretForm(Struct, frozen=True):
    """The form of one secret as it is shown again: without the secret."""

    name: str
    is_named: bool
    """Whether its name is given, and not to be typed."""
    found: SealedSecret | None
    providers: tuple[str, ...]
    wrong: dict[str, str]


def credential_routes(services: Services) -> list[Any]:
    """Reading, setting and forgetting, for people and for programs."""
    room = CredentialRoom(services)
    return [
        *_reading(services, room),
        *_setting(services),
        *_forgetting(services),
        *spare_routes(services, room.again),
        *_api(services),
    ]


class CredentialRoom:
    """The page of one credential, also with what was wrong about a step."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reader = CredentialReader(services)
        self._spares = SpareDesk(services)

    async def page(
        self,
        request: Asking,
        kind: str,
        name: str,
        wrong: str = "",
        status: int = 200,
        field: str | None = None,
    ) -> Response[str]:
        """Raises NotFoundException."""
        line = await self._reader.line(kind, name)
        is_ours = kind == "database"
        return await self._services.shell.page(
            request,
            "models/credential.html",
            "credentials",
            status,
            line=line,
            deeds=await self._reader.deeds(name) if is_ours else (),
            spares=await self._spares.read(line) if is_ours and line.is_set else None,
            refresh_s=self._services.settings.secrets.refresh_s,
            is_just_set=request.query_params.get("done") == "set",
            wrong=wrong,
            mistakes={field: wrong} if field else {},
        )

    async def again(
        self, request: Asking, name: str, error: RequestInvalid | Exhausted
    ) -> Response[str]:
        """The page of a credential of the database, after a step that was refused."""
        said = error.message, error.status, error.parameter
        return await self.page(request, "database", name, *said)


def _reading(services: Services, room: CredentialRoom) -> list[Any]:
    reader, shell = CredentialReader(services), services.shell

    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def credentials(request: Asking) -> Response[str]:
        found = await reader.read()
        return await shell.page(request, "models/credentials.html", "credentials", found=found)

    @route(f"{AT}/{{kind:str}}/{{name:str}}", http_method=READING, media_type=_HTML, opt=_READS)
    async def credential(
        request: Asking, kind: FromPath[str], name: FromPath[str]
    ) -> Response[str]:
        return await room.page(request, kind, name)

    return [credentials, credential]


def _setting(services: Services) -> list[Any]:
    reader, sealer, shell = CredentialReader(services), Sealer(services), services.shell

    async def showing(request: Asking, form: SecretForm, status: int = 200) -> Response[str]:
        return await shell.page(
            request,
            "models/set_credential.html",
            "credentials",
            status,
            form=form,
            refresh_s=services.settings.secrets.refresh_s,
        )

    @route(f"{AT}/set", http_method=READING, media_type=_HTML, opt=needs(*_ASKED))
    async def set_page(request: Asking) -> Response[str]:
        name = request.query_params.get("name", "")
        return await showing(request, await _form_of_secret(reader, name, is_named=bool(name)))

    @post(f"{AT}/set", media_type=_HTML, opt=unkept(_SETS), status_code=SEE_OTHER)
    async def set_secret(request: Asking) -> Response[Any]:
        form = await form_of(request)
        name, is_named = form.text("name"), bool(form.text("is_named"))
        person = session_of(request).person
        try:
            # A paste brings the line break that a terminal put there; no credential has one.
            value = Secret(form.raw("value").strip())
            await sealer.seal(person, name, value, _version(form))
        except RequestInvalid as error:
            wrong = {error.parameter or "version": error.message}
            shown = await _form_of_secret(reader, name, is_named=is_named, wrong=wrong)
            return await showing(request, shown, error.status)
        return Redirect(f"{AT}/database/{quote(name)}?done=set", status_code=SEE_OTHER)

    return [set_page, set_secret]


def _forgetting(services: Services) -> list[Any]:
    reader, sealer, shell = CredentialReader(services), Sealer(services), services.shell

    async def showing(request: Asking, name: str, wrong: str = "") -> Response[str]:
        return await shell.page(
            request,
            "models/forget_credential.html",
            "credentials",
            CONFLICT if wrong else 200,
            line=await reader.line("database", name),
            tolerance_s=services.settings.secrets.outage_tolerance_s,
            wrong=wrong,
        )

    @route(f"{AT}/remove", http_method=READING, media_type=_HTML, opt=needs(*_ASKED))
    async def remove_page(request: Asking) -> Response[str]:
        return await showing(request, request.query_params.get("name", ""))

    @post(f"{AT}/remove", media_type=_HTML, opt=_FORGETS, status_code=SEE_OTHER)
    async def remove(request: Asking) -> Response[Any]:
        form = await form_of(request)
        name = form.text("name")
        try:
            await sealer.forget(session_of(request).person, name, _version(form))
        except RequestInvalid as error:
            return await showing(request, name, error.message)
        return Redirect(AT, status_code=SEE_OTHER)

    return [remove_page, remove]


def _api(services: Services) -> list[Any]:
    reader, sealer = CredentialReader(services), Sealer(services)

    @get(API, opt=_READS)
    async def credentials_api() -> Credentials:
        return await reader.read()

    @post(f"{API}/{{name:str}}", opt=_SETS, status_code=200)
    async def set_api(request: Asking, name: FromPath[str]) -> Sealed:
        order = await body_of(request, SealOrder)
        value, person = Secret(order.value), session_of(request).person
        return await sealer.seal(person, name, value, order.expected_version)

    @post(f"{API}/{{name:str}}/remove", opt=_FORGETS, status_code=NO_CONTENT)
    async def remove_api(request: Asking, name: FromPath[str]) -> None:
        order = await body_of(request, Forget)
        await sealer.forget(session_of(request).person, name, order.expected_version)

    return [credentials_api, set_api, remove_api]


_ASKED: Final = (Permission.SECRETS_SET, "everywhere")


async def _form_of_secret(
    reader: CredentialReader, name: str, *, is_named: bool, wrong: dict[str, str] | None = None
) -> SecretForm:
    lines = (await reader.read()).lines
    providers = [line.providers for line in lines if (line.kind, line.name) == ("database", name)]
    found = await reader.sealed(name)
    return SecretForm(name, is_named, found, providers[0] if providers else (), wrong or {})


def _version(form: Form) -> int | None:
    return form.whole("version", VERSION_MAX)

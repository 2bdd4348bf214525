"""One provider: its configuration, its recent state, and the test of its connection.

The test is ordered here and made by a worker: this process opens no connection to a provider.
"""

import secrets
from typing import Any, Final
from urllib.parse import quote

from litestar import MediaType, Response, get, post, route
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.costs.prices import priced_targets
from admin.forms import form_of
from admin.models.advice import TITLES, advice
from admin.models.catalogue import ProviderLine, TargetLine, read_models
from admin.models.lately import LatelyReader, ProviderState
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.configuration.settings import ProviderSettings
from gateway.errors import Exhausted, RequestInvalid
from gateway.money.catalogue import worst_cost
from gateway.oversight.access import Permission, Person
from gateway.store.checkups import CLAIM_WITHIN_US, CheckupOrder, CheckupTable
from gateway.types import Target


AT: Final = "/models/providers/{name:str}"
API: Final = "/api/providers/{name:str}/test"
TOO_MANY: Final = 429
ASKED_TOKENS: Final = 24
"""More than two letters and a message's wrapping ever are."""
_HTML: Final = MediaType.HTML
_READS: Final = needs(Permission.SYSTEM_READ, "everywhere")
_TESTS: Final = needs(Permission.SYSTEM_CONFIGURE, "everywhere", records="provider.test_ordered")


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """Which target is called; the cheapest where none is named."""

    target: str = ""


class CallPlan(Struct, frozen=True):
    """A target that a test may call, and what that costs at most."""

    target: str
    cost_microusd: int | None
    """None where its price is not known: nothing would be served at it."""


class ProviderDetail(Struct, frozen=True):
    """All that a provider's page shows."""

    line: ProviderLine
    settings: ProviderSettings
    credential_href: str
    targets: tuple[TargetLine, ...]
    plans: tuple[CallPlan, ...]
    pools: tuple[str, ...]
    """Of which it is a member."""
    lately: ProviderState
    test: CheckupOrder | None
    state: str
    """Of the test; empty while there was none."""
    why_not: str
    """Why it cannot be tested; empty where it can."""


def provider_routes(services: Services) -> list[Any]:
    """The page, the order of a test, and both as JSON."""
    desk, shell = ProviderDesk(services), services.shell

    async def showing(request: Asking, name: str, status: int = 200, wrong: str = "") -> Any:
        return await shell.page(
            request,
            "models/provider.html",
            "models",
            status,
            found=await desk.detail(name),
            wrong=wrong,
            titles=TITLES,
            advice=advice,
            claim_within_us=CLAIM_WITHIN_US,
        )

    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def provider(request: Asking, name: FromPath[str]) -> Response[str]:
        page: Response[str] = await showing(request, name)
        return page

    @post(f"{AT}/test", media_type=_HTML, opt=_TESTS, status_code=SEE_OTHER)
    async def test(request: Asking, name: FromPath[str]) -> Response[Any]:
        form = await form_of(request)
        try:
            await desk.order(session_of(request).person, name, form.text("target"))
        except (Exhausted, RequestInvalid) as error:
            status = TOO_MANY if isinstance(error, Exhausted) else 400
            page: Response[str] = await showing(request, name, status, error.message)
            return page
        return Redirect(f"/models/providers/{quote(name)}#test", status_code=SEE_OTHER)

    @get("/api/providers/{name:str}", opt=_READS)
    async def provider_api(name: FromPath[str]) -> ProviderDetail:
        return await desk.detail(name)

    @post(API, opt=_TESTS, status_code=201)
    async def test_api(request: Asking, name: FromPath[str]) -> CheckupOrder:
        order = await body_of(request, Wanted)
        return await desk.order(session_of(request).person, name, order.target)

    return [provider, test, provider_api, test_api]


class ProviderDesk:
    """Reads what a provider's page shows, and orders tests for whoever is signed in."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._settings = services.settings
        self._table = CheckupTable(services.database, services.clock)
        self._lately = LatelyReader(services)

    async def detail(self, name: str) -> ProviderDetail:
        """One provider; raises NotFoundException.

        As all organisations found it: who sees this page reads the system everywhere.
        """
        settings = self._settings.providers.get(name)
        found = await read_models(self._services)
        line = next((each for each in found.providers if each.name == name), None)
        if settings is None or line is None:
            raise NotFoundException
        test = (await self._table.all()).get(name)
        places = self._places(name)
        return ProviderDetail(
            line=line,
            settings=settings,
            credential_href=credential_href(name, settings),
            targets=tuple(each for each in found.targets if each.provider in places),
            plans=await self._plans(name),
            pools=places[1:],
            lately=(await self._lately.read(None))[name],
            test=test,
            state="" if test is None else test.state(self._services.clock.utc_us()),
            why_not="A pool has no connection of its own: test its members."
            if settings.members
            else "",
        )

    async def order(self, person: Person, name: str, target: str, spare: str = "") -> CheckupOrder:
        """Leave an order for a worker.

        Raises:
            NotFoundException: no provider of this name is configured.
            RequestInvalid: it is a pool, or has no such target.
            Exhausted: one is under way, or there were too many lately.
        """
        settings = self._settings.providers.get(name)
        if settings is None:
            raise NotFoundException
        plans = [each.target for each in await self._plans(name)]
        if settings.members:
            raise RequestInvalid("A pool has no connection of its own: test its members.")
        if target and target not in plans:
            raise RequestInvalid("This provider has no such target.", parameter="target")
        called = target or (plans[0] if plans else "")
        now_us, last = self._services.clock.utc_us(), (await self._table.all()).get(name)
        if last is not None and last.is_open(now_us):
            raise Exhausted("A test of this provider is under way.")
        after = {"provider": name, "target": called} | ({"credential": spare} if spare else {})
        order_id = secrets.token_hex(8)
        async with self._services.deeds.doing(
            person.name, "provider.test_ordered", "", after=after | {"test": order_id}
        ):
            return await self._table.ask(order_id, name, called, person.name, spare)

    def _places(self, name: str) -> tuple[str, ...]:
        """The provider itself, and the pools that it is a member of."""
        pools = [pool for pool, each in self._settings.providers.items() if name in each.members]
        return (name, *pools)

    async def _plans(self, name: str) -> tuple[CallPlan, ...]:
        """Targets that a call could go to, the cheapest first."""
        places = self._places(name)
        priced = {each.name: each for each in await priced_targets(self._services)}
        plans = [
            CallPlan(target, _cost(priced[target]) if target in priced else None)
            for target, each in self._settings.targets.items()
            if each.provider in places
        ]
        return tuple(sorted(plans, key=lambda plan: (plan.cost_microusd is None, _of(plan))))


def credential_href(name: str, settings: ProviderSettings) -> str:
    """Where a provider's credential stands; empty where it names none."""
    reference = settings.credential
    if reference is None:
        return ""
    kinds = {
        "database": reference.db,
        "environment": reference.env,
        "file": reference.file,
        "vault": reference.vault,
    }
    kind = next((kind for kind, value in kinds.items() if value), "aws")
    return f"/models/credentials/{kind}/{quote(reference.db or name)}"


def _cost(target: Target) -> int:
    return worst_cost(target.price, ASKED_TOKENS, 1)


def _of(plan: CallPlan) -> tuple[int, str]:
    return plan.cost_microusd or 0, plan.target

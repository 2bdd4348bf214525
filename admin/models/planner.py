"""The capacity planner in the browser and as JSON: arithmetic only, nothing is kept."""

from typing import Annotated, Any, Final

from litestar import MediaType, Response, get, post
from litestar.enums import RequestEncodingType
from litestar.params import Body
from msgspec import Struct, structs

from admin.access import needs
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import ungrouped
from admin.services import Services
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.oversight.planner import (
    BYTES_PER_VALUE,
    Hardware,
    Load,
    Model,
    Plan,
    plan,
    read_model,
    sessions_that_fit,
)


AT: Final = "/models/planner"
CONTEXTS: Final = (4_096, 8_192, 16_384, 32_768, 65_536, 131_072)
_READS: Final = needs(Permission.SYSTEM_READ, "some")
_PLANS: Final = needs(Permission.SYSTEM_READ, "some", records="nothing: arithmetic")
EXAMPLE: Final = Model(layers=128, kv_heads=8, head_dim=128, parameters=405 * 10**9)


class PlanOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A model and a load; both have the worked example's numbers where nothing is said."""

    model: Model = EXAMPLE
    load: Load = Load()
    hardware: Hardware = Hardware()
    precision: str = "fp16"


class PlanForm(Struct, frozen=True):
    """The form, as it was typed."""

    config: str = ""
    parameters: str = ""
    users: str = str(Load().users)
    concurrency_percent: str = "8"
    input_tokens: str = str(Load().input_tokens)
    output_tokens: str = str(Load().output_tokens)
    queries_per_user_day: str = "150"
    hours_a_day: str = "8"
    peak_factor: str = "2"
    gpus_per_rack: str = str(Hardware().gpus_per_rack)
    gpu_gb: str = str(Hardware().gpu_gb)
    overhead_percent: str = "20"
    rack_tokens_s: str = str(Hardware().rack_tokens_s)
    rack_usd_per_hour: str = "0"
    api_usd_per_million_tokens: str = "0"
    precision: str = "fp16"


Form = Annotated[PlanForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def planner_routes(services: Services) -> list[Any]:
    """The page, its form, and the same as JSON."""

    async def showing(request: Asking, form: PlanForm) -> Response[str]:
        order, found, fits, wrong = None, None, [], {}
        try:
            order = order_of(form)
            found = plan(order.model, order.load, order.hardware, order.precision)
            fits = [(each, _fits(order, found.racks, each)) for each in CONTEXTS]
        except RequestInvalid as error:
            wrong = {error.parameter or "config": error.message}
        return await services.shell.page(
            request,
            "models/planner.html",
            "planner",
            400 if wrong else 200,
            form=form,
            order=order,
            found=found,
            fits=fits,
            wrong=wrong,
            precisions=[(each, each) for each in BYTES_PER_VALUE],
        )

    @get(AT, media_type=MediaType.HTML, opt=_READS)
    async def planner(request: Asking) -> Response[str]:
        return await showing(request, PlanForm())

    @post(AT, media_type=MediaType.HTML, opt=_PLANS, status_code=200)
    async def planned(request: Asking, data: Form) -> Response[str]:
        return await showing(request, data)

    @post("/api/planner", opt=_PLANS, status_code=200)
    async def plan_api(request: Asking) -> Plan:
        order = await body_of(request, PlanOrder)
        require_bounds(order.model)
        return plan(order.model, order.load, order.hardware, order.precision)

    return [planner, planned, plan_api]


def require_bounds(model: Model) -> None:
    """Raises RequestInvalid of a model that nobody could build."""
    most = Model(layers=10_000, kv_heads=10**6, head_dim=10**6, parameters=10**16)
    for name in model.__struct_fields__:
        if not 1 <= getattr(model, name) <= getattr(most, name):
            raise RequestInvalid(f"{name} is no number that a model has.", parameter=name)


def order_of(form: PlanForm) -> PlanOrder:
    """The form, understood.

    Raises:
        RequestInvalid: a field is no number, or the config is none.
    """
    given = {name: _number(form, name) for name in structs.asdict(form) if name not in _TEXTS}
    parameters = int(given.pop("parameters"))
    model = EXAMPLE
    if form.config.strip():
        model = read_model(form.config, parameters)
    elif parameters:
        model = structs.replace(EXAMPLE, parameters=parameters)
    require_bounds(model)
    return PlanOrder(model, _struct_of(Load, given), _struct_of(Hardware, given), form.precision)


_TEXTS: Final = ("config", "precision")


def _struct_of(kind: Any, given: dict[str, float]) -> Any:
    fields = {each.name: each.type for each in structs.fields(kind)}
    return kind(
        **{name: int(given[name]) if t is int else given[name] for name, t in fields.items()}
    )


def _number(form: PlanForm, name: str) -> float:
    text = ungrouped(str(getattr(form, name)).strip())
    if not text and name == "parameters":
        return 0
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    # What is not finite is not equal to itself, or too large for any field.
    if not abs(value) <= 10**16:
        raise RequestInvalid("This is no number.", parameter=name)
    return value


def _fits(order: PlanOrder, racks: int, context: int) -> int:
    return sessions_that_fit(order.model, order.hardware, racks, context, order.precision)

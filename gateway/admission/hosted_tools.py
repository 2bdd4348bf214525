"""Tools that run at a vendor and cost more than tokens: which a request offers, and how often.

Nothing is free because nobody knew its price: a tool without a known price is refused, and
searches, which vendors count, are reserved and billed one by one.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from gateway.admission.bounds import tools_brought
from gateway.errors import FeatureUnsupported
from gateway.price import Price
from gateway.types import ChatRequest, Target


SEARCHES_ASSUMED: Final = 10
"""Reserved for a request that names no bound; what a vendor searches beyond it is booked."""

_SEARCH: Final = "web_search"
_IN_CHAT: Final = "web_search_options"
"""Chat completions' own word for it, whose answers do not say how often."""
_SHELL: Final = "shell"
_SHELL_THERE: Final = "shell_in_container"
_BESIDE_TOKENS: Final = (
    *("code_execution", "code_interpreter", "file_search", "image_generation", "advisor"),
    _SHELL_THERE,
)
"""Paid by containers, stores, pictures or another model's tokens, which no answer tells."""
_PLAIN: Final = frozenset({"function", "custom", "namespace"})
_PAID: Final = (_SEARCH, *_BESIDE_TOKENS)
NO_PRICE: Final = "What this tool costs at this model is not known"


class Offered(Struct, frozen=True):
    """A tool that a request offers."""

    place: str
    kind: str
    tool: Mapping[str, object]

    @property
    def told_as(self) -> str:
        """How it is reported where it is left out, whatever its version."""
        word = next((each for each in _PAID if self.kind.startswith(each)), "")
        if word == _SHELL_THERE:
            word = _SHELL
        return self.place if self.is_field else f"tools.{word}"

    @property
    def is_field(self) -> bool:
        """Whether it is a field of the request's own, and no tool among others."""
        return self.place == _IN_CHAT


def offers_hosted_tools(request: ChatRequest) -> bool:
    """Whether one is offered that may be refused for its price."""
    tree = request.tree
    if not request.has_tools:
        return _IN_CHAT in tree
    brought = tools_brought(tree)
    own = tree.get("tools")
    listed = [*own, *brought] if isinstance(own, list) else brought
    # Agents offer dozens of plain ones in every turn.
    kinds = set(map(kind_of, listed)) - _PLAIN
    return _IN_CHAT in tree or any(kind.startswith(_PAID) for kind in kinds)


def may_run_tools_there(request: ChatRequest) -> bool:
    """Whether a vendor may run tools before it answers, priced or not, and so read all of it again.

    A tool of a type that nobody here knows may be such a one.
    """
    tree = request.tree
    if "mcp_servers" in tree or _IN_CHAT in tree:
        return True
    own = tree.get("tools") if request.has_tools else None
    listed = [*(own if isinstance(own, list) else ()), *tools_brought(tree)]
    return not _PLAIN.issuperset(kind for kind in map(kind_of, listed) if kind)


def check_tools_priced(request: ChatRequest, target: Target) -> None:
    """Refuse a tool of the vendor's whose price nobody knows; those in the house cost nothing more.

    Raises:
        FeatureUnsupported
    """
    for offered in unpriced_tools(request, target):
        place = offered.place
        raise FeatureUnsupported(f"{place}: {NO_PRICE} (rule 19).", parameter=place)


def unpriced_tools(request: ChatRequest, target: Target) -> list[Offered]:
    """Those among the tools of a request whose price at this target nobody knows."""
    price = target.price
    if target.in_house or price.unbilled_tools or not offers_hosted_tools(request):
        return []
    return [
        each for each in _offered(request.tree) if each.is_field or is_unpriced(each.kind, price)
    ]


def kind_of(tool: object) -> str:
    """A tool's type, by which its price is looked up; empty where it has none.

    A shell that the caller runs is another tool than one in a container of the vendor's.
    """
    if not isinstance(tool, dict) or not isinstance(kind := tool.get("type"), str):
        return ""
    room = tool.get("environment") if kind == _SHELL else None
    is_here = room is None or (isinstance(room, dict) and room.get("type") == "local")
    return kind if is_here else _SHELL_THERE


def is_unpriced(kind: object, price: Price) -> bool:
    """Whether a tool of this kind is paid beside the tokens, and nobody knows how much."""
    if not isinstance(kind, str) or not kind.startswith(_PAID):
        return False
    return not (kind.startswith(_SEARCH) and price.web_search_microusd)


def searches_at_most(request: ChatRequest) -> int:
    """How many searches are reserved: as many as the request allows, else what is assumed."""
    if not request.has_tools or not offers_hosted_tools(request):
        return 0
    searching = [each.tool for each in _offered(request.tree) if each.kind.startswith(_SEARCH)]
    if not searching:
        return 0
    in_all = _bound(request.tree.get("max_tool_calls"))
    if in_all is not None:
        return in_all
    bounds = [_bound(tool.get("max_uses")) for tool in searching]
    return sum(SEARCHES_ASSUMED if each is None else each for each in bounds)


def _bound(said: object) -> int | None:
    return max(said, 0) if isinstance(said, int) and not isinstance(said, bool) else None


def _offered(tree: Mapping[str, object]) -> Iterator[Offered]:
    """Every tool with its place and type; those that items bring stand among the tools."""
    tools = tree.get("tools")
    own = tools if isinstance(tools, list) else []
    listed = [(f"tools[{at}]", each) for at, each in enumerate(own)]
    listed += [("tools", each) for each in tools_brought(tree)]
    for place, tool in listed:
        if isinstance(tool, dict) and (kind := kind_of(tool)):
            yield Offered(place, kind, tool)
    if tree.get(_IN_CHAT) is not None:
        yield Offered(_IN_CHAT, _SEARCH, {})

"""Converts the tools of a Responses request for other dialects, which know only functions.

A function in a namespace gets a name of its own, a custom tool becomes a function with one text
argument, and a built-in tool that the caller runs becomes a function with the arguments of its
calls. Names follow from the request alone, so that they can be mapped back when the answer is read.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from gateway.conversation import Hosted, TextForm, Tool, ToolChoice
from gateway.dialects.fitting.naming import renamed_tools, tool_name
from gateway.dialects.fitting.text_tools import text_schema
from gateway.dialects.loss import Losses, unsupported
from gateway.dialects.openai_responses import built_in
from gateway.dialects.openai_responses.wire import ListedTool, ToolWire


ADDITIONAL = "additional_tools"
"""The type of an item that brings tools; Codex sends all of its tools in one."""

_NAMESPACE, _FUNCTION, _CUSTOM = "namespace", "function", "custom"
_CROSSING = frozenset({_NAMESPACE, _FUNCTION, _CUSTOM})
"""Types of tools that other dialects can express, besides built-in ones that the caller runs."""
_BRINGING = frozenset({ADDITIONAL, f"{built_in.SEARCH}_output"})

_CALL = "function_call"
_CALLS = {_CALL: _FUNCTION, "custom_tool_call": _CUSTOM}
_TELLING = frozenset({"tools", "namespace", "input", "action", "operation", "execution"})
"""Fields of an item that show that it concerns more than plain functions."""
_KEPT = 48
_REASON = "Only function tools exist there"
_HOSTED = (
    *("web_search", "file_search", "code_interpreter", "image_generation", "mcp"),
    *(built_in.SEARCH, "shell"),
)
HOSTED_ITEMS = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "mcp_list_tools"),
        *("image_generation_call", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
    }
)
"""Types of items that report the work of tools that the vendor runs."""


class Called(Struct, frozen=True):
    """A tool as its caller knows it."""

    name: str
    namespace: str = ""
    kind: str = _FUNCTION
    """The type of the tool; a built-in tool's name is its type."""

    @property
    def is_custom(self) -> bool:
        return self.kind == _CUSTOM

    @property
    def is_built_in(self) -> bool:
        return self.kind in built_in.KINDS


def listed(tree: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Every tool with its place: the request's, those that items bring, and nested ones.

    Whatever kind of item or tool contains them: no address to connect to may be passed on unseen.
    """
    yield from _inside(tree.get("tools"), "tools")
    items = tree.get("input")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and "tools" in item:
            yield from _inside(item["tools"], f"input[{index}].tools")


def _inside(tools: object, place: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict):
            yield f"{place}[{index}]", tool
            if "tools" in tool:
                yield from _inside(tool["tools"], f"{place}[{index}].tools")


def crosses(tool: Mapping[str, object]) -> bool:
    """Whether other dialects can express a tool."""
    kind = tool.get("type")
    return kind in _CROSSING or (kind in built_in.KINDS and _is_callers(str(kind), tool))


def called_there(tree: Mapping[str, object]) -> Mapping[str, Called]:
    """Names of tools there → the caller's tools, if they differ."""
    known = _known(tree)
    if not known:
        return {there: Called(name) for there, name in renamed_tools(tree).items()}
    here = {there: called for called, there in _names(known).items()}
    for called in known:
        if _is_plain(called) and (there := tool_name(called.name)) != called.name:
            here[there] = called
    return here


def _known(tree: Mapping[str, object]) -> dict[Called, None]:
    """Tools that a request brings, and other than plain functions that it has called.

    Each once and in order; empty if all of them are plain functions.
    """
    tools, items = tree.get("tools"), tree.get("input")
    telling = [
        item
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, dict) and not _TELLING.isdisjoint(item)
    ]
    found: dict[Called, None] = {}
    if not telling and not (isinstance(tools, list) and any(map(_is_special, tools))):
        return found
    _add_declared(found, tools)
    for item in telling:
        kind = item.get("type")
        if kind in _BRINGING:
            _add_declared(found, item.get("tools"))
        elif kind in _CALLS:
            _add(found, item.get("name"), item.get("namespace"), _CALLS[kind])
        elif (own := built_in.called_in(item)) and _is_callers(own, item):
            _add(found, own, "", own)
    return found


def _is_special(tool: object) -> bool:
    return isinstance(tool, dict) and tool.get("type") != _FUNCTION


def _add_declared(found: dict[Called, None], tools: object, namespace: object = None) -> None:
    for tool in tools if isinstance(tools, list) else ():
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind in {_FUNCTION, _CUSTOM}:
            _add(found, tool.get("name"), namespace, kind)
        elif kind in built_in.KINDS and namespace is None and _is_callers(kind, tool):
            _add(found, kind, "", kind)
        elif kind == _NAMESPACE and namespace is None:
            _add_declared(found, tool.get("tools"), tool.get("name"))


def _is_callers(kind: str, about: Mapping[str, object]) -> bool:
    return built_in.is_callers(kind, about.get("execution"), about.get("environment"))


def _add(found: dict[Called, None], name: object, namespace: object, kind: str) -> None:
    if isinstance(name, str):
        space = namespace if isinstance(namespace, str) else ""
        found[Called(name, space, kind)] = None


def _is_plain(called: Called) -> bool:
    return not called.namespace and called.kind == _FUNCTION


def _names(known: Mapping[Called, None]) -> dict[Called, str]:
    """Names there of all tools except plain functions, which keep their own names.

    Readable unless another tool of the request would get the same name, and never random.
    """
    taken = {tool_name(called.name) for called in known if _is_plain(called)}
    wishes = {called: _wish(called) for called in known if not _is_plain(called)}
    wanted = Counter(wishes.values())
    return {
        called: wish if wanted[wish] == 1 and wish not in taken else _told_apart(called, wish)
        for called, wish in wishes.items()
    }


def _wish(called: Called) -> str:
    space = called.namespace.rstrip("_")
    return tool_name(f"{space}__{called.name}" if space else called.name)


def _told_apart(called: Called, wish: str) -> str:
    told = msgspec.json.encode((called.namespace, called.name, called.kind))
    return f"{wish[:_KEPT]}_{hashlib.sha256(told).hexdigest()[:15]}"


class Toolbox:
    """Tools of one request while it is converted."""

    def __init__(self, tree: Mapping[str, object], losses: Losses) -> None:
        self._losses = losses
        self._known = _known(tree)
        self._names = _names(self._known)
        self.tools: list[Tool] = []
        self._places: dict[str, int] = {}
        """Name there → place among the tools."""
        self._again = False

    def there(self, called: Called) -> str:
        """The tool's name in another dialect; the writer checks what plain names may look like."""
        if not self._names:
            return called.name
        return self._names.get(called, called.name)

    def bring(self, tools: object, place: str) -> list[str]:
        """Read the tools that an item brings; they replace earlier ones of the same name.

        Returns their names there. Raises like `put`.
        """
        self._again = True
        self.put(_read(tools, place), place)
        brought: dict[Called, None] = {}
        _add_declared(brought, tools)
        return [tool_name(self.there(each)) for each in brought]

    def put(self, tools: Iterable[ToolWire], place: str, namespace: ToolWire | None = None) -> None:
        """Add a list of tools, or the contents of a namespace.

        Raises:
            FeatureUnsupported: one is neither a function nor run by a vendor, or does not have the
                expected shape.
        """
        for index, tool in enumerate(tools):
            if tool.type == _NAMESPACE and namespace is None and tool.name:
                where = f"{place}[{index}].tools"
                self.put(_read(tool.tools or [], where), where, tool)
            elif tool.type in {_FUNCTION, _CUSTOM} and tool.name:
                self._put_one(tool, namespace, is_first=index == 0)
            elif namespace is None and _is_run_by_caller(tool):
                name = self.there(Called(tool.type, kind=tool.type))
                about = built_in.about(tool.type, tool.description, tool.environment)
                self._add(Tool(name, about, built_in.schema(tool.type, tool.parameters)))
            elif hosted := _hosted(tool):
                where = f"{place}[{index}].type"
                reason = f"Only its own vendor runs {hosted}"
                self._losses.hosted.append(Hosted(where, f"tools.{hosted}", reason, 19))
            else:
                raise unsupported(f"{place}[{index}].type", _REASON, 19)

    def _put_one(self, tool: ToolWire, namespace: ToolWire | None, *, is_first: bool) -> None:
        """A namespace's description is given once, with its first function."""
        space = (namespace.name or "") if namespace is not None else ""
        name = self.there(Called(tool.name or "", space, tool.type))
        about = tool.description or ""
        if is_first and namespace is not None and namespace.description:
            about = f"{space}: {namespace.description}\n\n{about}".rstrip()
        if tool.type == _FUNCTION:
            self._add(Tool(name, about, tool.parameters or {}, tool.strict))
        else:
            form = _form(tool.format)
            self._add(Tool(name, about, text_schema(form), text=form))

    def _add(self, tool: Tool) -> None:
        place = self._places.setdefault(tool.name, len(self.tools))
        if self._again and place < len(self.tools):
            self.tools[place] = tool
        else:
            self.tools.append(tool)

    def leave(self, kind: str, place: str) -> None:
        """Note an item of the history that reports the work of a tool that its vendor runs."""
        reason = "This kind of item has no equivalent there"
        self._losses.hosted.append(Hosted(f"{place}.type", f"input.{kind}", reason, 8))

    def choice(self, asked: ListedTool, place: str) -> ToolChoice:
        """A tool that must be called; raises FeatureUnsupported if it cannot be expressed there."""
        own = Called(asked.type, kind=asked.type)
        if own.is_built_in and own in self._known:
            return ToolChoice("named", self.there(own))
        if asked.type not in {_FUNCTION, _CUSTOM} or not asked.name:
            raise unsupported(f"{place}.type", _REASON, 19)
        called = Called(asked.name, asked.namespace or "", asked.type)
        if called not in self._known and not called.namespace:
            # The vendor's own type has no field for the namespace here.
            like = [
                each
                for each in self._known
                if each.name == called.name and each.kind == called.kind
            ]
            if len(like) > 1:
                raise unsupported(f"{place}.name", "Several namespaces have such a tool", 19)
            called = like[0] if like else called
        return ToolChoice("named", self.there(called), is_text=called.is_custom)


def _read(tools: object, place: str) -> list[ToolWire]:
    try:
        return msgspec.convert(tools, list[ToolWire])
    except msgspec.ValidationError:
        raise unsupported(place, "These tools cannot be read", 19) from None


def _hosted(tool: ToolWire) -> str:
    """Which vendor-run tool it is, whatever its version; empty if none.

    Without such a tool a request can do less; without a tool that its caller runs, the model could
    do nothing at all.
    """
    if _is_run_by_caller(tool):
        return ""
    return next((each for each in _HOSTED if tool.type.startswith(each)), "")


def _is_run_by_caller(tool: ToolWire) -> bool:
    return built_in.is_callers(tool.type, tool.execution, tool.environment)


def _form(asked: object) -> TextForm:
    """The required form of a custom tool's text."""
    if not isinstance(asked, dict) or asked.get("type") != "grammar":
        return TextForm()
    return TextForm(str(asked.get("syntax")), str(asked.get("definition")))

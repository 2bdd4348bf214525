"""Converts OpenAI's built-in tools that the caller runs to functions, and their calls back.

Each becomes a function whose arguments are defined here. A call comes back as an item of its own
type, and the output of the caller's program becomes the function's result. `computer` is not
included: its calls carry the vendor's safety checks, and an answer without them would say that
there is nothing to check.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from gateway.admission.answer_bounds import is_readable


Json = dict[str, object]

SEARCH: Final = "tool_search"
KINDS: Final = frozenset({"local_shell", "shell", "apply_patch", SEARCH})
CALLS: Final[Mapping[str, str]] = {f"{kind}_call": kind for kind in KINDS}
OUTPUTS: Final[Mapping[str, str]] = {
    f"{SEARCH}_output": SEARCH,
    **{f"{kind}_call_output": kind for kind in KINDS - {SEARCH}},
}
PLACED: Final = frozenset(
    {
        *("type", "id", "call_id", "status", "action", "operation", "arguments", "execution"),
        *("environment", "output", "max_output_length", "tools"),
    }
)
"""Fields of such items that are converted."""
PREFIXES: Final[Mapping[str, str]] = {
    "local_shell": "lsh",
    "shell": "sh",
    "apply_patch": "apc",
    SEARCH: "tsc",
}
"""Prefixes of ids: the vendor refuses others when a history comes back to it."""

_MOST: Final = "max_output_length"
_STRING: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_STRINGS: Final = {"type": "array", "items": _STRING}
_ABOUT: Final[Mapping[str, str]] = {
    "local_shell": "Run a program on the user's machine.",
    "shell": "Run commands in a shell, one after the other. The result is a list of what each of "
    "them wrote, and how it ended.",
    "apply_patch": "Create, change or delete one file. The diff of a new file has a `+` before "
    "each line. In the diff of a change, `@@` alone or with a line above it (such as a function's "
    "head) begins each place; then come lines to find with a space before them, lines to take out "
    "with a `-` and lines to put in with a `+`. There are no numbers of lines and no names of "
    "files in it.",
    SEARCH: "Look for tools that could be called.",
}
_SCHEMAS: Final[Mapping[str, tuple[Mapping[str, object], list[str]]]] = {
    "local_shell": (
        {
            "command": _STRINGS | {"description": "The program and its arguments."},
            "env": {"type": "object", "additionalProperties": _STRING},
            "timeout_ms": _WHOLE,
            "user": _STRING,
            "working_directory": _STRING,
        },
        ["command"],
    ),
    "shell": (
        {"commands": _STRINGS, "timeout_ms": _WHOLE, _MOST: _WHOLE},
        ["commands"],
    ),
    "apply_patch": (
        {
            "type": _STRING | {"enum": ["create_file", "update_file", "delete_file"]},
            "path": _STRING | {"description": "Relative to the root of the workspace."},
            "diff": _STRING | {"description": "What becomes of it, unless it is deleted."},
        },
        ["type", "path"],
    ),
}
_LOCAL: Final[Mapping[str, object]] = {"type": "local"}


class Exec(Struct, omit_defaults=True):
    """What a call of `local_shell` does."""

    command: list[str]
    env: dict[str, str] = {}
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class Commands(Struct, omit_defaults=True):
    """What a call of `shell` does."""

    commands: list[str]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class Operation(Struct, omit_defaults=True):
    """What a call of `apply_patch` does."""

    type: Literal["create_file", "update_file", "delete_file"]
    path: str
    diff: str | None = None


def is_callers(kind: str, execution: object, environment: object) -> bool:
    """Whether a tool of one of these types is run by the caller, not by the vendor."""
    if kind == SEARCH:
        return execution == "client"
    is_here = environment is None or (
        isinstance(environment, dict) and environment.get("type") == "local"
    )
    return kind in KINDS and is_here


def called_in(item: Mapping[str, Any]) -> str:
    """Which of these tools an item calls; empty for any other item."""
    return CALLS.get(str(item.get("type")), "")


def answered_in(item: Mapping[str, Any]) -> str:
    """Which of these tools an item is a result of; empty for any other item."""
    return OUTPUTS.get(str(item.get("type")), "")


def about(kind: str, said: str | None, environment: object) -> str:
    """A function's description; the caller's skills are listed here by name."""
    text = said or _ABOUT[kind]
    skills = environment.get("skills") if isinstance(environment, dict) else None
    for each in skills if isinstance(skills, list) else ():
        if isinstance(each, dict):
            text += f"\nSkill {each.get('name')} in {each.get('path')}: {each.get('description')}"
    return text


def schema(kind: str, said: Mapping[str, object] | None) -> Mapping[str, object]:
    if kind == SEARCH:
        return said or {}
    properties, required = _SCHEMAS[kind]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def arguments_of(item: Mapping[str, Any]) -> str:
    """A call of the history as the arguments of a function.

    Raises:
        msgspec.ValidationError: it does not have the expected shape.
    """
    field, shape = _SAID[CALLS[item["type"]]]
    msgspec.convert(item.get(field), shape)
    said = {name: value for name, value in item[field].items() if value is not None}
    if shape is Exec:
        said.pop("type", None)
    return msgspec.json.encode(said).decode()


_SAID: Final[Mapping[str, tuple[str, Any]]] = {
    "local_shell": ("action", Exec),
    "shell": ("action", Commands),
    "apply_patch": ("operation", Operation),
    SEARCH: ("arguments", dict[str, object]),
}


class _Written(Struct):
    stdout: str
    stderr: str
    outcome: dict[str, object]


class _Shelled(Struct):
    output: list[_Written]


class _Patched(Struct):
    status: Literal["completed", "failed"]
    output: str | None = None


class _Executed(Struct):
    output: str


def result_of(item: Mapping[str, Any]) -> tuple[str, bool]:
    """A call's result as that of a function, and whether it failed; not for searches.

    Raises:
        msgspec.ValidationError: it does not have the expected shape.
    """
    kind = OUTPUTS[item["type"]]
    if kind == "local_shell":
        return msgspec.convert(item, _Executed).output, False
    if kind == "apply_patch":
        patched = msgspec.convert(item, _Patched)
        return patched.output or patched.status, patched.status == "failed"
    msgspec.convert(item, _Shelled)
    most = item.get("max_output_length")
    written = item["output"] if most is None else {"output": item["output"], _MOST: most}
    return msgspec.json.encode(written).decode(), False


def call_fields(kind: str, arguments: str) -> Json:
    """The fields of a call's item besides its ids and its type.

    A call that cannot be read does nothing: it gets no commands, or a patch that fits no file.
    """
    if kind == SEARCH:
        found = _decoded(arguments, _ANY)
        status = "incomplete" if found is None else "completed"
        return {"arguments": found or {}, "execution": "client", "status": status}
    if kind == "apply_patch":
        operation = _decoded(arguments, _OPERATION) or Operation("update_file", "", arguments)
        return {"operation": _operation(operation), "status": "completed"}
    if kind == "shell":
        commands = _decoded(arguments, _COMMANDS)
        action: Json = {"commands": [], "timeout_ms": None, _MOST: None}
        action |= msgspec.to_builtins(commands) if commands is not None else {}
        status = "incomplete" if commands is None else "completed"
        return {"action": action, "environment": dict(_LOCAL), "status": status}
    run = _decoded(arguments, _EXEC)
    done = {"type": "exec", "command": [], "env": {}}
    done |= msgspec.to_builtins(run) if run is not None else {}
    return {"action": done, "status": "incomplete" if run is None else "completed"}


def _operation(asked: Operation) -> Json:
    operation: Json = {"type": asked.type, "path": asked.path}
    if asked.type != "delete_file":
        operation["diff"] = asked.diff or ""
    return operation


def begun(kind: str, fields: Json) -> Json:
    """The same fields for a call that has just begun."""
    if kind == "shell":
        action = fields["action"]
        assert isinstance(action, dict)
        return fields | {"action": action | {"commands": []}, "status": "in_progress"}
    return fields | {"status": "in_progress"}


def commands_of(kind: str, fields: Json) -> list[str]:
    """The commands of a complete call, which a stream sends one by one."""
    action = fields["action"] if kind == "shell" else {}
    assert isinstance(action, dict)
    return list(action.get("commands", ()))


def _decoded(arguments: str, decoder: "msgspec.json.Decoder[Any]") -> Any:
    if not is_readable(arguments):
        return None
    try:
        return decoder.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


_EXEC = msgspec.json.Decoder(Exec)
_COMMANDS = msgspec.json.Decoder(Commands)
_OPERATION = msgspec.json.Decoder(Operation)
_ANY = msgspec.json.Decoder(dict[str, object])

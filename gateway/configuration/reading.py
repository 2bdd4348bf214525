"""Reads the configuration: `gatewright.toml` and the environment, checked before anything starts.

This is the only module that reads the environment. `GATEWRIGHT_<SECTION>__<KEY>=value` overrides a
scalar, e.g. `GATEWRIGHT_DATA_PLANE__PORT=9000`; a key outside any section stands alone, e.g.
`GATEWRIGHT_LOG_LEVEL`. Every error names the file (or variable), the key and the reason.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

from gateway.configuration.checking import check, check_database
from gateway.configuration.settings import Settings
from gateway.configuration.suggesting import closest, said_of, variable_meant
from gateway.configuration.texts import text_of
from gateway.errors import ConfigurationInvalid


ENVIRONMENT_PREFIX = "GATEWRIGHT_"
_OF_KUBERNETES = re.compile(r"(tcp|udp|sctp)://")
_ALONE = ("log_level", "admin_url", "data_plane_url")
_READ_ALONE = (*_ALONE, "config")
"""With the file's name, which the command line reads."""


def load_settings(file: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read and check the configuration.

    Raises:
        ConfigurationInvalid: with the file or variable, the key and the reason.
    """
    environment = os.environ if environment is None else environment
    try:
        text = text_of(file)
    except FileNotFoundError as error:
        reason = "there is no such file: name one with --config, or make one with `gatewright init`"
        raise ConfigurationInvalid(str(file), "", reason) from error
    except OSError as error:
        raise ConfigurationInvalid(str(file), "", error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise ConfigurationInvalid(str(file), "", "is not UTF-8 text") from error
    return parse_settings(text, str(file), file.resolve().parent, environment)


def parse_settings(
    text: str, source: str, folder: Path, environment: Mapping[str, str]
) -> Settings:
    """Check a configuration text; see `load_settings`."""
    tree = _tree_of(text, source)
    _apply_environment(tree, environment, source)
    tree |= {"source": source, "folder": str(folder)}
    try:
        settings = _converted(tree, source)
        check(settings)
        check_database(settings, environment)
    except ConfigurationInvalid as error:
        variable = ENVIRONMENT_PREFIX + error.key.upper().replace(".", "__")
        if not environment.get(variable):
            raise
        # The file itself has another value there, rightly so.
        raise ConfigurationInvalid(variable, error.key, error.reason) from error
    return settings


def _converted(tree: Mapping[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        key = _key_of(tree, where.rstrip("`"), reason)
        raise ConfigurationInvalid(source, key, said_of(key, reason)) from error


def _tree_of(text: str, source: str) -> dict[str, Any]:
    """The tables of a configuration text, as far as they can be read at all."""
    try:
        tree = tomllib.loads(text)
        key = _with_nul(tree)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationInvalid(source, "", f"not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigurationInvalid(source, "", "is nested too deeply") from error
    except ValueError as error:
        raise ConfigurationInvalid(source, "", "has a number of thousands of digits") from error
    for reserved in ("source", "folder"):
        if reserved in tree:
            raise ConfigurationInvalid(source, reserved, "is not a setting")
    if key:
        raise ConfigurationInvalid(source, key, "has a NUL in it, which no name or file has")
    return tree


def read_environment(name: str) -> str | None:
    """A variable that a setting names, e.g. a provider's key; None when it is unset or empty."""
    return os.environ.get(name) or None


def _with_nul(value: object) -> str:
    """The key of the first text with a NUL; empty if there is none."""
    items: Iterable[tuple[str, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = ((f"[{index}]", each) for index, each in enumerate(value))
    for key, each in items:
        if isinstance(each, str) and "\0" in each:
            return key
        if below := _with_nul(each):
            return f"{key}.{below}"
    return ""


def _key_of(tree: Mapping[str, Any], where: str, reason: str) -> str:
    """The key that is wrong; msgspec writes `providers[...]` for any provider."""
    section, is_table, rest = where.partition("[...]")
    if is_table:
        table: Mapping[str, Any] = tree
        kind: Any = Settings
        for name in section.split("."):
            kind = next(each.type for each in msgspec.structs.fields(kind) if each.name == name)
            table = table[name]
        for name, item in table.items():
            try:
                msgspec.convert(item, get_args(kind)[1])
            except msgspec.ValidationError:
                where = f"{section}.{name}{rest}"
                break
    found = re.search(r"field `([^`]+)`", reason)
    return ".".join(filter(None, (where, found[1] if found else "")))


def _apply_environment(tree: dict[str, Any], environment: Mapping[str, str], source: str) -> None:
    """Put `GATEWRIGHT_SECTION__KEY` values where TOML would have put them."""
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    named = {*_named_in(tree)}
    for name in _ALONE:
        variable = f"{ENVIRONMENT_PREFIX}{name.upper()}"
        if value := environment.get(variable):
            tree[name] = _scalar(variable, name, value, sections[name])
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if "__" not in variable:
            if variable not in named:
                _refuse_mistyped(variable, value)
            continue
        section, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        kind = sections.get(section)
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            reason = f"there is no such section{closest(section, sections)}"
            raise ConfigurationInvalid(variable, section, reason)
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if key not in fields:
            reason = f"there is no such setting{closest(key, fields)}"
            raise ConfigurationInvalid(variable, f"{section}.{key}", reason)
        scalar = _scalar(variable, f"{section}.{key}", value, fields[key])
        table = tree.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigurationInvalid(source, section, "must be a table")
        table[key] = scalar


def _named_in(value: object) -> Iterator[str]:
    """The variables that a file refers to, for a credential, say."""
    inner: Iterable[object] = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        inner = value.values()
        if isinstance(name := value.get("env"), str):
            yield name
    for each in inner:
        yield from _named_in(each)


def _refuse_mistyped(variable: str, value: str) -> None:
    """Refuse a misspelled variable: whoever set it believes that it counts.

    Kubernetes sets such names only to addresses.
    """
    if not value or _OF_KUBERNETES.match(value):
        return
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    meant = variable_meant(name, _READ_ALONE)
    if meant and meant != name:
        right = f"{ENVIRONMENT_PREFIX}{meant}".upper()
        reason = f"is not read; write {right}"
        raise ConfigurationInvalid(variable, meant.replace("__", "."), reason)


def _scalar(variable: str, key: str, value: str, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationInvalid(variable, key, said_of(key, str(error))) from error

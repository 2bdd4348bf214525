"""The documents are true: they contain what the code has, and their examples work."""

import ast
import asyncio
import json
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import replace

from classifiers.pii.detect import find
from gateway import errors
from gateway.__main__ import commands, main
from gateway.app import DataPlane
from gateway.assembly.configured_policy import load_policy
from gateway.assembly.wiring import make_egress, make_providers
from gateway.cli.init import prepare
from gateway.configuration.guarding import GuardRules
from gateway.configuration.reading import load_settings
from gateway.configuration.sections import CallerSettings, IssuerSettings
from gateway.configuration.settings import ProviderSettings, Settings, TargetSettings
from gateway.dialects.registry import DIALECTS
from gateway.errors import ConfigurationInvalid, GatewrightError, UpstreamRefused
from gateway.money.catalogue import load_catalogue
from gateway.providers.registry import KINDS
from gateway.telemetry import LOG_KEYS, Event
from gateway.worker.pricing import configured_targets
from local_engine.serve.metrics import CertificateMetrics, ConnectionMetrics, Counts
from local_engine.serve.metrics import Metrics as EngineMetrics
from policies.checking.check import check
from policies.language.functions import FUNCTIONS
from policies.language.vocabulary import FACTS
from policies.ordering import ORDERINGS
from policies.render import render_report
from tests.cli.operator import subcommands, walk


ROOT = Path(__file__).resolve().parent.parent
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.joinpath("docs").rglob("*.md")])
FENCE = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
OPERATIONS = "docs/operations"
RECORD = re.compile(r"(\d{4})-[a-z0-9-]+\.md")
RECORD_SECTIONS = ["## Context", "## Decision", "## Price", "## What would change our mind"]
GLOSSARY_WORDS = {
    # The field's words, for the gateway and for the engine.
    *("principal", "virtual key", "data class", "finding", "complexity", "decision", "obligation"),
    *("plan", "candidate", "attempt", "reservation", "settlement", "receipt", "checkpoint"),
    *("inclusion proof", "prefill", "decode", "block", "block table", "prefix cache", "scheduler"),
    *("sequence", "time to first token (ttft)", "inter-token latency (itl)"),
    # The nouns of the journey and of the house.
    *("chat request", "inspection", "facts", "clearance", "delta", "usage", "audit record"),
    *("target", "provider", "jurisdiction", "dialect", "tier", "policy document", "constraint"),
    *("preference", "route", "budget account", "slice", "intent", "outcome", "segment"),
    *("snapshot", "worker", "data plane", "control plane", "engine", "egress", "micro-dollar"),
    *("leaf hash", "hash chain", "projection", "pepper", "master key", "data key", "breaker"),
}


def page(name: str) -> str:
    return ROOT.joinpath(name).read_text(encoding="utf-8")


def rows(name: str) -> dict[str, list[str]]:
    """The table rows of a page by the code word in their first cell."""
    found: dict[str, list[str]] = {}
    for line in page(name).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            found.setdefault(cells[0].strip("`| "), cells)
    return found


def operations() -> str:
    """All pages for operators, one after the other."""
    return "\n".join(page(str(file)) for file in sorted(ROOT.joinpath(OPERATIONS).glob("*.md")))


# --- operations ---------------------------------------------------------------------------------


def _settings(kind: type[Struct], prefix: str) -> Iterator[tuple[str, object]]:
    """Key and default of every setting below a section."""
    for field in msgspec.structs.fields(kind):
        key = f"{prefix}{field.name}"
        default = field.default
        if default is NODEFAULT and field.default_factory is not NODEFAULT:
            default = field.default_factory()
        if key in {"source", "folder"}:
            continue
        if isinstance(field.type, type) and issubclass(field.type, Struct) and not _is_leaf(key):
            yield from _settings_of(default, f"{key}.")
        elif key == "providers":
            yield from _settings(ProviderSettings, "providers.NAME.")
        elif key == "targets":
            yield from _settings(TargetSettings, "targets.NAME.")
        else:
            yield key, default


def _settings_of(section: object, prefix: str) -> Iterator[tuple[str, object]]:
    """A section's defaults are those of the object in `Settings`, not of its class."""
    assert isinstance(section, Struct)
    for field in msgspec.structs.fields(type(section)):
        value = getattr(section, field.name)
        if isinstance(value, GuardRules):
            yield from _settings_of(value, f"{prefix}{field.name}.")
        elif isinstance(section, CallerSettings):
            yield from _settings(IssuerSettings, f"{prefix}{field.name}.NAME.")
        else:
            yield f"{prefix}{field.name}", value


def _is_leaf(key: str) -> bool:
    return key.startswith(("providers.", "targets."))


def _shown(default: object) -> str:
    """A default as the table of settings shows it: TOML, or a word in italics for none."""
    if default is NODEFAULT:
        return "*required*"
    if default is None or default == "":
        return "*none*"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, str):
        return f'`"{default}"`'
    if isinstance(default, tuple):
        return f"`{json.dumps(default)}`"
    if isinstance(default, Struct):
        return f'`{{ file = "{getattr(default, "file", "")}" }}`'
    return f"`{default}`"


def test_every_setting_stands_in_operations_with_its_default() -> None:
    table = rows(f"{OPERATIONS}/settings.md")
    wrong = [
        f"{key}: {_shown(default)}"
        for key, default in _settings(Settings, "")
        if key not in table or table[key][1] != _shown(default)
    ]

    assert wrong == []


def test_no_setting_stands_in_operations_twice() -> None:
    known = {key for key, _ in _settings(Settings, "")}
    said = re.findall(r"^\| `([^`]+)` \|", operations(), re.MULTILINE)

    assert [key for key, count in Counter(said).items() if key in known and count > 1] == []


def test_operations_documents_no_setting_that_is_not_there() -> None:
    known = {key for key, _ in _settings(Settings, "")}
    sections = {key.partition(".")[0] for key in known if "." in key}
    stale = [
        key
        for key in rows(f"{OPERATIONS}/settings.md")
        if key.partition(".")[0] in sections and "." in key and key not in known
    ]

    assert stale == []


def test_every_event_log_key_and_metric_stands_in_operations(tmp_path: Path) -> None:
    metrics, events = rows(f"{OPERATIONS}/metrics.md"), rows(f"{OPERATIONS}/events.md")
    text = page(f"{OPERATIONS}/events.md")
    asyncio.run(prepare(tmp_path))
    plane = DataPlane(load_settings(tmp_path / "gatewright.toml"))
    families = [*plane.metrics.registry.collect(), *EngineMetrics({})._registry.collect()]
    families += CertificateMetrics(float)._registry.collect()
    families += [*Counts()._registry.collect(), *ConnectionMetrics(int, 1)._registry.collect()]
    names = [
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    ]
    assert len(names) > 10

    assert sorted(names) == sorted(metrics)
    assert sorted(event.value for event in Event) == sorted(events)
    assert sorted(key for key in LOG_KEYS if f"`{key}`" not in text) == []


def test_alarms_that_are_shown_ask_for_metrics_and_labels_that_there_are() -> None:
    metrics = rows(f"{OPERATIONS}/metrics.md")
    part = page(f"{OPERATIONS}/metrics.md").partition("## Worth an alarm")[2].partition("\n## ")[0]
    asked = re.findall(r"^\| [^`|]+ \| `([^`]+)` \|", part, re.MULTILINE)
    assert len(asked) == part.count("\n| ") - 1

    for expression in asked:
        found = re.findall(r"(gatewright_\w+)(?:\{([^}]*)\})?", expression)
        assert found
        for name, matchers in found:
            labels = set(re.findall(r"(\w+)[=!]", matchers))
            known = metrics[name.removesuffix("_bucket")]
            assert labels <= set(re.findall(r"\w+", known[1])), expression


def test_what_the_index_of_symptoms_quotes_is_what_the_program_says() -> None:
    """An operator looks for the words on the screen: they change with the program's."""
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", page(f"{OPERATIONS}/faults.md"), re.MULTILINE)
    quoted = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    assert len(quoted) > 20
    codes = {event.value for event in Event} | {each.code for each in _error_classes()}
    with pytest.raises(msgspec.ValidationError) as unknown:
        msgspec.convert({"mistyped": 1}, Settings)
    said = [*_texts(), str(unknown.value)]

    assert [
        span
        for span in quoted
        if span not in codes
        and not any(all(part in text for part in span.split("…")) for text in said)
    ] == []


def _texts() -> Iterator[str]:
    """Every text of the gateway's source, with … for each inserted value."""
    for file in ROOT.joinpath("gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(each.value) if isinstance(each, ast.Constant) else "…"
                    for each in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_command_and_option_stands_in_operations() -> None:
    table, text = rows(f"{OPERATIONS}/commands.md"), operations()
    names = walk(commands)
    assert len(names) > 10

    assert sorted(names) == sorted(name for name in table if name.startswith("gatewright"))
    assert sorted(name for name in _options(commands) if f"`{name}" not in text) == []


def test_the_commands_that_take_no_configuration_are_those_that_the_page_names() -> None:
    """`secrets make` was once missing: operators who followed the page were refused."""
    (line,) = [line for line in operations().splitlines() if "takes `--config FILE` but" in line]
    parts = line.partition("FILE` but")[2].partition(". ")[0].split("those of")
    names, groups = (re.findall(r"`([a-z ]+)`", part) for part in parts)
    without = {name.removeprefix("gatewright ") for name in walk(commands) if not _configured(name)}

    assert without == {
        name
        for name in (each.removeprefix("gatewright ") for each in walk(commands))
        if name in names or name.partition(" ")[0] in groups
    }


def _configured(name: str) -> bool:
    command: click.Command = commands
    for word in name.split()[1:]:
        assert isinstance(command, click.Group)
        command = dict(subcommands(command))[word]
    return "--config" in _options(command)


def _options(command: click.Command) -> set[str]:
    if isinstance(command, click.Group):
        return {name for _, each in subcommands(command) for name in _options(each)}
    return {max(each.opts, key=len) for each in command.params if isinstance(each, click.Option)}


def test_addresses_that_an_openid_provider_is_told_exist() -> None:
    told = set(re.findall(r"`ADMIN_URL(/[\w/-]+)`", operations()))
    source = "".join(file.read_text() for file in ROOT.joinpath("admin").rglob("*.py"))

    assert len(told) == 3
    assert sorted(path for path in told if f'"{path}"' not in source) == []


def test_every_command_that_a_text_or_a_message_names_exists() -> None:
    known = {tuple(name.split()[1:]) for name in walk(commands)}
    groups = {name[:length] for name in known for length in range(len(name))}
    files = [
        *PAGES,
        *(file for name in ("gateway", "admin") for file in ROOT.joinpath(name).rglob("*.py")),
    ]
    texts = [(file, file.read_text(encoding="utf-8"), "`") for file in files]
    # In a page a command stands as code, or in quotes as what is to be typed.
    pages = ROOT.joinpath("admin", "pages").rglob("*.html")
    texts += [(file, file.read_text(encoding="utf-8"), '(?:<code>|")') for file in pages]
    unknown = [
        f"{file.relative_to(ROOT)}: gatewright{found}"
        for file, text, mark in texts
        for found in re.findall(mark + r"(?:\.venv/bin/)?gatewright((?: [a-z]+)+)", text)
        if not any(tuple(found.split()[:length]) in known for length in (1, 2, 3))
        and tuple(found.split()) not in groups
    ]

    assert unknown == []


def _typed() -> list[tuple[str, list[str]]]:
    """Every `gatewright …` in a block to be pasted, with its page."""
    return [
        (file.name, shlex.split(found, comments=True))
        for file in PAGES
        for info, block in FENCE.findall(file.read_text(encoding="utf-8"))
        if info in {"sh", "console", "ini"}
        for found in re.findall(
            r"(?:^|[ =/])gatewright ([a-z].*)", block.replace("\\\n", " "), re.MULTILINE
        )
    ]


def test_what_is_to_be_pasted_has_options_that_exist_and_all_that_are_required() -> None:
    typed = _typed()
    assert len(typed) > 10
    wrong = [(name, words) for name, words in typed if not _can_be_typed(words)]

    assert wrong == []


def _can_be_typed(words: list[str]) -> bool:
    command: click.Command = commands
    while isinstance(command, click.Group):
        known = dict(subcommands(command))
        if not words or words[0] not in known:
            return False
        command, words = known[words[0]], words[1:]
    if command.context_settings.get("ignore_unknown_options"):
        return True
    options = [each for each in command.params if isinstance(each, click.Option)]
    said = {word.partition("=")[0] for word in words if word.startswith("--")}
    return said <= {
        name for each in options for name in (*each.opts, *each.secondary_opts)
    } and all(said & set(each.opts) for each in options if each.required)


@pytest.mark.anyio
async def test_the_configurations_that_operations_shows_load_beside_the_example(
    tmp_path: Path,
) -> None:
    """The files that they name do not exist here; everything else is built as at a start."""
    files = ("ca_file", "client_certificate", "client_key", "credential", "proxy_credential")
    shown = _fences(operations(), "toml")
    assert len(shown) > 1
    for number, text in enumerate(shown):
        file = tmp_path / f"{number}.toml"
        file.write_text(f"{page('gateway/cli/template.toml')}\n{text}")
        settings = load_settings(file, {})
        assert {target.name for target in configured_targets(settings)} == set(settings.targets)
        here = {
            name: replace(provider, **{each: None for each in files if getattr(provider, each)})
            for name, provider in settings.providers.items()
        }
        egress = make_egress(settings)
        assert make_providers(replace(settings, providers=here), egress, time.monotonic)
        await egress.close()


def test_the_price_entries_that_are_shown_whole_are_whole() -> None:
    shown = _fences(operations(), "toml prices")
    assert shown
    for text in shown:
        assert load_catalogue(text, "a page").models


def test_addresses_that_are_called_nobodys_are_no_findings_and_others_are() -> None:
    told = page(f"{OPERATIONS}/another-gateway.md")
    [row] = [line for line in told.splitlines() if line.startswith("| an e-mail address")]
    domains = re.findall(r"`([a-z.]+)`", row.partition("documentation (")[2].partition(")")[0])
    assert len(domains) > 5
    nobodys = [f"ingrid@{'mail' if each[0] == '.' else ''}{each}" for each in domains]

    assert [each for each in (*nobodys, "noreply@acme.in") if find(f"Tell {each} today")] == []
    assert [each.label for each in find("Tell ingrid@acme.in today")] == ["EMAIL"]


def test_what_belongs_to_this_machine_goes_into_no_image() -> None:
    """A checkout with a demo in it has keys and a database in `var`; the pages' scripts belong."""
    ignored = {line.removeprefix("**/") for line in page(".dockerignore").splitlines()}
    ours = {line.strip("/") for line in page(".gitignore").splitlines() if line}

    assert ".git" in ignored
    assert ours - ignored == {"admin/static/built"}


def test_the_kinds_of_providers_stand_in_operations() -> None:
    text = page(f"{OPERATIONS}/settings.md")

    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []


def test_the_example_configuration_loads_and_can_be_served(tmp_path: Path) -> None:
    file = tmp_path / "gatewright.toml"
    file.write_text(page("gateway/cli/template.toml"))
    settings = load_settings(file, {})

    assert {target.name for target in configured_targets(settings)} == set(settings.targets)
    assert load_policy(settings).name == "default"


# --- API ----------------------------------------------------------------------------------------


def _error_classes(base: type[GatewrightError] = GatewrightError) -> list[type[GatewrightError]]:
    below = [found for each in base.__subclasses__() for found in _error_classes(each)]
    return [each for each in (base, *below) if each.__module__ == errors.__name__]


def _example(kind: type[GatewrightError]) -> GatewrightError:
    if issubclass(kind, UpstreamRefused):
        return kind("words", upstream_status=502)
    if issubclass(kind, ConfigurationInvalid):
        return kind("file", "key", "reason")
    return kind("words")


def _on_the_wire(kind: type[GatewrightError]) -> list[str]:
    """Status and type in each dialect, as the table of errors shows them."""
    cells = []
    for name in ("openai_chat", "anthropic_messages"):
        status, body = DIALECTS[name].encode_error(_example(kind), "req_1")
        cells.append(f"{status} `{msgspec.json.decode(body)['error']['type']}`")
    return cells


def test_every_error_stands_in_the_api_with_its_status_and_type_in_each_dialect() -> None:
    table = rows("docs/api.md")
    kinds = [kind for kind in _error_classes() if not issubclass(kind, errors.StartupRefused)]
    wrong = [
        f"{kind.code}: {_on_the_wire(kind)}"
        for kind in kinds
        if kind.code not in table or table[kind.code][1:3] != _on_the_wire(kind)
    ]

    assert wrong == []


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    """Each below its base class, with its status."""
    drawn, above = {}, [GatewrightError.__name__]
    for branch, name, status in re.findall(
        r"^([│ ]*)[├└]── (\w+) +(\d{3}|-|\(the up)", errors.__doc__ or "", re.MULTILINE
    ):
        depth = len(branch) // 4 + 1
        above[depth:] = [name]
        drawn[name] = (above[depth - 1], status)
    kinds = [kind for kind in _error_classes() if kind is not GatewrightError]
    unsaid = {"StartupRefused": "-", "ConfigurationInvalid": "-", "UpstreamRefused": "(the up"}

    assert drawn == {
        kind.__name__: (kind.__bases__[0].__name__, unsaid.get(kind.__name__, str(kind.status)))
        for kind in kinds
    }


def test_errors_that_stop_a_start_stand_in_operations() -> None:
    text = page(f"{OPERATIONS}/commands.md")
    kinds = _error_classes(errors.StartupRefused)

    assert [kind.code for kind in kinds if f"`{kind.code}`" not in text] == []


def test_every_header_and_path_of_ours_stands_in_the_api() -> None:
    text = page("docs/api.md")
    source = "".join(file.read_text() for file in ROOT.joinpath("gateway").rglob("*.py"))
    headers = set(re.findall(r'"(x-(?!amz-)[a-z-]+)"', source)) - {"x-forwarded-for"}
    paths = set(re.findall(r'"(/(?:v1|health|metrics)[a-z_/]*)', source))

    assert sorted(name for name in headers if f"`{name}" not in text) == []
    public = paths - {
        "/v1/models/",
        "/v1/responses/",
        "/v1/files/",
        "/v1/batches/",
        "/v1/messages/batches/",
        "/v1/decisions/",
        "/v1/projects/",
        "/health",
        "/health/ready",
        "/v1",
    }
    assert sorted(path for path in public if f"{path}`" not in text) == []


# --- policies -----------------------------------------------------------------------------------


def _fences(text: str, language: str) -> list[str]:
    return [body for info, body in FENCE.findall(text) if info == language]


def test_every_policy_document_that_is_shown_passes_its_own_check() -> None:
    documents = _fences(page("docs/policies.md"), "toml policy")
    assert documents

    reports = [check(text, "docs/policies.md") for text in documents]
    assert [render_report(report) for report in reports if not report.is_ok] == []


def test_every_fact_function_and_order_of_the_language_is_described() -> None:
    table = rows("docs/policies.md")

    assert [name for name in FACTS if name not in table] == []
    assert [
        name for name in FUNCTIONS if not any(row.startswith(f"{name}(") for row in table)
    ] == []
    assert [name for name in ORDERINGS if name not in table] == []


def _sessions() -> list[tuple[str, str]]:
    """Command and output of every session that docs/policies.md shows."""
    text = "".join(_fences(page("docs/policies.md"), "console"))
    return [
        (command.replace("\\\n", ""), shown)
        for command, shown in re.findall(
            r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", text, re.MULTILINE
        )
    ]


@pytest.mark.parametrize(("command", "shown"), _sessions())
def test_a_session_that_is_shown_happens_as_it_is_shown(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit):
        main()
    output, problems = capsys.readouterr()
    pattern = ".*?".join(map(re.escape, shown.rstrip("\n").split("…")))

    assert re.fullmatch(pattern, (output + problems).rstrip("\n"), re.DOTALL) is not None


# --- decisions, glossary, links -----------------------------------------------------------------


def test_decision_records_are_numbered_without_gaps_linked_and_complete() -> None:
    files = sorted(file for file in DECISIONS.iterdir() if file.name != "README.md")
    index = page("docs/decisions/README.md")

    assert [file.name[:4] for file in files] == [f"{n:04}" for n in range(1, len(files) + 1)]
    for file in files:
        assert RECORD.fullmatch(file.name), file.name
        assert f"]({file.name})" in index, file.name
        text = file.read_text(encoding="utf-8")
        assert text.startswith(f"# {file.name[:4]} "), file.name
        assert re.findall(r"^## .*$", text, re.MULTILINE) == RECORD_SECTIONS, file.name


def test_a_decision_that_code_or_texts_refer_to_exists() -> None:
    numbers = {file.name[:4] for file in DECISIONS.glob("[0-9]*.md")}
    files = [*PAGES, *(file for file in ROOT.joinpath("gateway").rglob("*.py"))]
    missing = [
        f"{file.relative_to(ROOT)}: {number}"
        for file in files
        for number in re.findall(r"docs/decisions/(\d{4})", file.read_text(encoding="utf-8"))
        if number not in numbers
    ]

    assert missing == []


def test_the_glossary_defines_the_words_of_the_field_in_alphabetical_order() -> None:
    entries = re.findall(r"^\*\*([^*]+)\*\*", page("docs/glossary.md"), re.MULTILINE)
    words = [entry.lower() for entry in entries]

    assert sorted(GLOSSARY_WORDS - set(words)) == []
    assert words == sorted(words)


def test_the_commands_of_the_readme_are_those_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", page("Makefile"), re.MULTILINE))
    asked = set(re.findall(r"^ *make ([a-z]+)", page("README.md"), re.MULTILINE))

    assert {"demo", "test"} <= asked
    assert asked <= targets

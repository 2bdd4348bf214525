"""The house rules of CONTRIBUTING.md as code: those ruff, mypy and import-linter do not check."""

import ast
import configparser
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gateway.dialects.registry import DIALECTS
from gateway.providers.registry import KINDS
from tests import rooms


ROOT = Path(__file__).resolve().parent.parent
PACKAGES = rooms.PACKAGES
TEXT_SUFFIXES = {
    *(".py", ".md", ".toml", ".txt", ".in", ".html", ".css", ".json", ".mako", ".yml", ".yaml"),
    *(".sh", ".cfg", ".ini", ""),
}

FILE_LINES_MAX = 400
ALONE = {"gateway/audit/proving/offline.py": 500}
"""A stranger verifies with this one file alone, so it may not be split into several."""
TEST_LINES_MAX = 600
FUNCTION_LINES_MAX = 50
NESTING_MAX = 4
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}

# The three named borders: the ASGI edge, the worker loops, and the one place where classifiers run.
BORDERS = {
    "gateway/api/door.py",
    "gateway/audit/projecting/projector.py",
    "gateway/audit/writer.py",
    "gateway/inspection/inspector.py",
    "gateway/providers/egress/connection.py",  # raised again in whoever waits for the piece
    "gateway/pacing/upkeep.py",
    # Both keep what a step raised for whoever asks for its results.
    "local_engine/runner/model_runner.py",
    "local_engine/runner/overlap.py",
    "local_engine/serve/api/app.py",
    "local_engine/serve/compute/worker.py",
    "local_engine/text/tokenizer_bounds.py",  # one call of a library that raises nothing narrower
}
BROAD = {"Exception", "BaseException"}

FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {
    *(("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("torch", "load")),
    *(("os", "system"), ("os", "popen"), ("subprocess", "getoutput")),
    *(("subprocess", "getstatusoutput"), ("asyncio", "create_subprocess_shell")),
    *(("builtins", "eval"), ("builtins", "exec"), ("builtins", "compile")),
    ("ssl", "_create_unverified_context"),
}
FORBIDDEN_FLAGS = {"shell", "trust_remote_code", "allow_pickle"}
FORBIDDEN_ABSENCES = {"weights_only", "verify", "verify_ssl", "check_hostname", "ssl"}
"""Arguments that must never be False."""
# Files that run at every start of Python: a poisoned package needs no more to run everywhere.
KNOWN_AT_START = re.compile(
    r"__editable__\.gatewright-[0-9.]+\.pth|a1_coverage\.pth|distutils-precedence\.pth"
    r"|_virtualenv\.pth"
)
# A model's chat template, from the model directory, in a sandbox; never a caller's text.
TEMPLATE_READERS = {"local_engine/text/template.py"}

# Where somebody is proved by a secret. How long `==` takes says how much of one was right.
WHERE_PROVED = (
    *("gateway/identity.py", "gateway/secrets/", "gateway/store/identity/", "gateway/workloads/"),
    *("admin/access.py", "admin/undo.py", "admin/sign_in/", "local_engine/serve/api/app.py"),
)
PUBLISHED_KEYS = {"gateway/secrets/issuer_keys.py"}
COMPARED_STEADILY = {
    "gateway/identity.py": 1,
    "gateway/secrets/secret.py": 1,
    "gateway/store/identity/sessions.py": 1,
    "gateway/store/identity/setup_links.py": 1,
    "admin/access.py": 1,
    "admin/undo.py": 1,
    "admin/sign_in/begun.py": 1,
    "admin/sign_in/oidc.py": 1,
    "admin/sign_in/pages.py": 1,
    "admin/sign_in/token_sessions.py": 1,
    "local_engine/serve/api/app.py": 1,
}
PROOF = re.compile(
    r"(?:.*_)?(?:digest|hexdigest|digest_of|reveal|as_bytes|signature|csrf|mac|hmac|password|pepper"
    r"|nonce)"
)

# Where the words of one upstream may be compared: in its own adapter.
ADAPTERS = ("gateway/providers/", "gateway/dialects/")
UPSTREAM_NAMES = {*KINDS, *DIALECTS, "vllm", "sglang", "claude", "gpt", "ollama"} - {"engine"}

NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def sources() -> tuple[Path, ...]:
    """Every Python file that is part of the product."""
    files = (file for name in PACKAGES for file in ROOT.joinpath(name).rglob("*.py"))
    return tuple(sorted(file for file in files if "node_modules" not in file.parts))


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def test_every_module_says_what_it_is_for() -> None:
    silent = [name_of(file) for file in sources() if not ast.get_docstring(parsed(file))]

    assert silent == []


def test_no_context_of_tls_leaves_its_least_version_to_the_system() -> None:
    """Distributions build Python with whatever their OpenSSL allows."""
    unsaid = []
    for file in sources():
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef):
                text = ast.unparse(node)
                makes = "ssl.create_default_context(" in text or "ssl.SSLContext(" in text
                if makes and "minimum_version = ssl.TLSVersion.TLSv1_2" not in text:
                    unsaid.append(f"{name_of(file)}:{node.lineno} {node.name}")

    assert unsaid == []


def test_files_are_short_enough_to_be_read_in_one_sitting() -> None:
    tests = sorted(ROOT.joinpath("tests").rglob("*.py"))
    limits = [(file, ALONE.get(name_of(file), FILE_LINES_MAX)) for file in sources()]
    limits += [(file, TEST_LINES_MAX) for file in tests]
    long = [
        f"{name_of(file)}: {count} lines"
        for file, limit in limits
        if (count := len(file.read_text(encoding="utf-8").splitlines())) > limit
    ]

    assert long == []


def test_functions_are_short() -> None:
    long = [
        f"{name_of(file)}:{function.lineno} {function.name}: {count} lines"
        for file, function in _functions()
        if (count := _body_lines(function)) > FUNCTION_LINES_MAX
    ]

    assert long == []


def test_code_is_not_nested_deeply() -> None:
    deep = [
        f"{name_of(file)}:{function.lineno} {function.name}: {depth} levels"
        for file, function in _functions()
        if (depth := _depth(function.body)) > NESTING_MAX
    ]

    assert deep == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    everywhere = [*sources(), *ROOT.joinpath("tests").rglob("*.py")]
    names = [(file, {file.stem, *file.relative_to(ROOT).parts[:-1]}) for file in everywhere]
    vague = [name_of(file) for file, parts in names if parts & VAGUE_NAMES]

    assert vague == []


def test_everything_is_caught_only_at_the_named_borders() -> None:
    broad: dict[str, list[int]] = {}
    for file in sources():
        for node in ast.walk(parsed(file)):
            if _is_broad(node):
                broad.setdefault(name_of(file), []).append(getattr(node, "lineno", 0))

    assert broad.keys() - BORDERS == set(), broad
    assert broad.keys() & BORDERS == BORDERS, "a border that catches nothing broad is no border"


def test_no_constant_of_a_module_is_given_twice() -> None:
    """The later one wins for both authors: a merge of two changes may cause that."""
    twice = []
    for file in sources():
        named = Counter(
            target.id
            for each in parsed(file).body
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None
            for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
            if isinstance(target, ast.Name) and target.id.isupper()
        )
        twice += [f"{name_of(file)}: {name}" for name, count in named.items() if count > 1]
    assert twice == []


def test_nothing_is_evaluated_unpickled_or_run_in_a_shell() -> None:
    found = [
        f"{name_of(file)}:{getattr(node, 'lineno', 0)}: {what}"
        for file in sources()
        for node in ast.walk(parsed(file))
        if (what := _dangerous(node, name_of(file)))
    ]

    assert found == []


def test_what_proves_somebody_is_compared_in_a_time_that_tells_nothing() -> None:
    calls = Counter(
        name_of(file)
        for file in sources()
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and _last_name(node) == "compare_digest"
    )
    compared = [
        f"{name_of(file)}:{node.lineno}: {ast.unparse(node)}"
        for file in sources()
        if name_of(file).startswith(WHERE_PROVED) and name_of(file) not in PUBLISHED_KEYS
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Compare) and _compares_proofs(node)
    ]

    assert compared == [], "use hmac.compare_digest"
    assert calls == COMPARED_STEADILY, "a place that proves somebody is new, or proves no more"


def test_no_upstreams_name_is_compared_outside_its_adapter() -> None:
    found = [
        f"{name_of(file)}:{getattr(node, 'lineno', 0)}: {word}"
        for file in sources()
        if not name_of(file).startswith(ADAPTERS)
        for node in ast.walk(parsed(file))
        for word in _compared_words(node)
        if word in UPSTREAM_NAMES
    ]

    assert found == []


def test_the_map_is_the_one_that_modules_draw() -> None:
    """If it is not, `python -m tests.rooms` draws it."""
    of_rooms = ROOT.joinpath("ARCHITECTURE.md").read_text(encoding="utf-8")

    assert ROOT.joinpath("docs", "rooms.md").read_text(encoding="utf-8") == rooms.every_file()
    assert of_rooms == rooms.drawn(of_rooms)
    assert of_rooms.count("`gateway/audit/`") == 1


def test_the_map_shows_the_directions_that_are_held() -> None:
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    layers = contract["importlinter:contract:gateway"]["layers"].strip()
    directions = ROOT.joinpath("ARCHITECTURE.md").read_text(encoding="utf-8")

    assert f"```\n{layers}\n```" in directions.partition("\n## Directions\n")[2]


def test_no_text_holds_a_path_of_a_machine_or_the_host_of_a_registry() -> None:
    folders = "work|root|home|Users|mnt"
    machine = re.compile(rf"(?<![\w.~:-])/(?:{folders})/[A-Za-z]")
    registry = re.compile(
        r"https?://[^\s\"'<>]*(?:py"
        r"pi|pythonhosted|artifactory|jfrog|nexus|devpi|/simple\b)"
        r"|--(?:extra-)?index-url[ =]\S"
    )
    found = [
        f"{name_of(file)}:{number}: {line.strip()[:80]}"
        for file in _texts()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if machine.search(line) or registry.search(line)
    ]

    assert found == []


def test_every_file_has_a_name_that_somebody_chose() -> None:
    """A program that takes content for a name leaves a file behind, and `git add` takes it."""
    named = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*|\.[a-z][a-z_.-]*")
    everywhere = [*_texts(), *ROOT.iterdir()]
    names = {part for file in everywhere for part in file.relative_to(ROOT).parts}

    assert {name for name in names if not named.fullmatch(name)} == set()


def test_migrations_follow_each_other_one_by_one() -> None:
    files = sorted(ROOT.joinpath("migrations/versions").glob("[0-9]*_*.py"))
    numbers = [file.name[:4] for file in files]
    assert numbers == [f"{number:04}" for number in range(1, len(files) + 1)]
    for file, number, before in zip(files, numbers, ["", *numbers], strict=False):
        said = file.read_text(encoding="utf-8")
        assert f'revision = "{number}"' in said
        assert (f'down_revision: str | None = "{before}"' in said) == (before != ""), file.name


def test_a_promise_for_later_links_to_its_issue() -> None:
    word = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X{3})\b(?!.*https?://\S+/issues/\d+)")
    found = [
        f"{name_of(file)}:{number}"
        for file in _texts()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if word.search(line)
    ]

    assert found == []


def test_every_locked_requirement_is_pinned_and_hashed() -> None:
    text = ROOT.joinpath("constraints", "locked.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pinned = re.compile(r"[a-z0-9][a-z0-9._-]*(?:\[[a-z0-9,._-]+\])?==[^\s=]+( ; [^\\]+)? \\")
    hashed = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    wrong = [line for line in lines if not (pinned.fullmatch(line) or hashed.fullmatch(line))]
    unhashed = [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if pinned.fullmatch(line) and not hashed.fullmatch(following)
    ]

    assert wrong == []
    assert unhashed == []
    assert "torch==" not in text


def test_nothing_that_nobody_knows_runs_at_every_start_of_python() -> None:
    places = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    running = {
        file.name
        for place in places
        for file in place.glob("*.pth")
        if re.search(r"(?m)^\s*import\b", file.read_text(encoding="utf-8", errors="replace"))
    }

    assert {name for name in running if not KNOWN_AT_START.fullmatch(name)} == set()
    assert not KNOWN_AT_START.fullmatch("litellm_init.pth")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "pickle"),
        ("from marshal import loads", "marshal"),
        ("eval(text)", "eval"),
        ("yaml.load(text)", "yaml.load"),
        ("torch.load(file)", "torch.load"),
        ("environment.from_string(text)", "from_string"),
        ("run(text, shell=True)", "shell"),
        ("from os import path, system", "os.system"),
        ("from pickle import dumps, loads", "pickle, pickle"),
        ("asyncio.create_subprocess_shell(text)", "asyncio.create_subprocess_shell"),
        ("numpy.load(file, allow_pickle=True)", "allow_pickle"),
        ("load(file, weights_only=False)", "weights_only"),
        ("requests.get(url, verify=False)", "verify"),
        ("numpy.load(file, allow_pickle=False)", ""),
        ("from os import path", ""),
        ("model.eval()", ""),
        ("run(text, shell=False)", ""),
    ],
)
def test_the_look_for_dangerous_calls_sees_them(source: str, what: str) -> None:
    found = [_dangerous(node, "gateway/example.py") for node in ast.walk(ast.parse(source))]

    assert "".join(found) == what


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        ("peppers.digest(text, 1) == kept.digest", True),
        ("_as_bytes(self._value) == _as_bytes(other.reveal())", True),
        ("given != key.reveal()", True),
        ("hashlib.sha256(text).hexdigest() == mark", True),
        ("claims.get('nonce') == begun.nonce", True),
        ("_csrf in (csrf, '')", True),
        ("columns.digest == digest", False),
        ("people.c.digest == digest_of(code)", False),
        ("len(digest) == 32", False),
        ("digest is None", False),
    ],
)
def test_the_look_for_compared_proofs_sees_them(source: str, *, is_one: bool) -> None:
    node = ast.parse(source, mode="eval").body
    assert isinstance(node, ast.Compare)
    assert _compares_proofs(node) is is_one


@pytest.mark.parametrize(
    ("handler", "is_broad"),
    [
        ("except Exception: pass", True),
        ("except: pass", True),
        ("except (OSError, BaseException) as error: log(error)", True),
        ("except BaseException:\n    undo()\n    raise", False),
        ("except OSError: pass", False),
    ],
)
def test_the_look_for_broad_handlers_sees_them(handler: str, *, is_broad: bool) -> None:
    tree = ast.parse(f"try:\n    act()\n{handler}")

    assert any(_is_broad(node) for node in ast.walk(tree)) is is_broad


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('kind == "openai"', ["openai"]),
        ('name.startswith("claude-")', ["claude"]),
        ('kind in ("anthropic", "vllm")', ["anthropic", "vllm"]),
        ('KINDS["openai"]', []),
    ],
)
def test_the_look_for_compared_names_sees_them(source: str, words: list[str]) -> None:
    nodes = ast.walk(ast.parse(source))

    assert [word for node in nodes for word in _compared_words(node)] == words


def test_nesting_counts_an_elif_once_and_a_function_anew() -> None:
    flat = "if a:\n    pass\nelif b:\n    pass\nelif c:\n    pass"
    deep = "for a in b:\n with c:\n  try:\n   if d:\n    e()\n  except F:\n   pass"

    assert _depth(ast.parse(flat).body) == 1
    assert _depth(ast.parse(deep).body) == 4


def _functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for file in sources():
        for node in ast.walk(parsed(file)):
            if isinstance(node, FUNCTIONS):
                yield file, node


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    if not body:
        return 0
    last = body[-1].end_lineno
    assert last is not None
    return last - body[0].lineno + 1


def _depth(statements: list[ast.stmt]) -> int:
    return max((_depth_of(statement) for statement in statements), default=0)


def _depth_of(statement: ast.stmt) -> int:
    """Levels of compound statements; an `elif` is as deep as its `if`, a function starts anew."""
    if not isinstance(statement, NESTING):
        return 0
    depths = [0]
    for name, value in ast.iter_fields(statement):
        if name in {"handlers", "cases"}:
            depths += [_depth(inner.body) for inner in value]
        elif name == "orelse" and len(value) == 1 and isinstance(value[0], ast.If):
            depths.append(_depth_of(value[0]) - 1)
        elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            depths.append(_depth(value))
    return 1 + max(depths)


def _compares_proofs(node: ast.Compare) -> bool:
    """Whether it compares proofs by `==` or `in`; a database's comparison is not timed here."""
    sides = [node.left, *node.comparators]
    sides += [each for side in sides if isinstance(side, ast.Tuple) for each in side.elts]
    is_by_text = any(isinstance(each, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for each in node.ops)
    is_of_rows = any(
        isinstance(side, ast.Attribute) and _last_name(side.value) in {"c", "columns"}
        for side in sides
    )
    names = map(_last_name, sides)
    return is_by_text and not is_of_rows and any(map(PROOF.fullmatch, names))


def _last_name(node: ast.AST) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_broad(node: ast.AST) -> bool:
    """A handler that swallows everything, or a `suppress` that does."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "suppress":
        return any(getattr(each, "id", "") in BROAD for each in node.args)
    if not isinstance(node, ast.ExceptHandler):
        return False
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    is_broad = any(kind is None or getattr(kind, "id", "") in BROAD for kind in kinds)
    return is_broad and not _raises_again(node)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether the handler ends by raising what it caught: it cleans up and swallows nothing."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def _dangerous(node: ast.AST, file: str) -> str:
    """The name of what is forbidden here, or an empty text."""
    if isinstance(node, ast.Import):
        return ", ".join(each.name for each in node.names if each.name in FORBIDDEN_IMPORTS)
    if isinstance(node, ast.ImportFrom):
        taken = [f"{node.module}.{each.name}" for each in node.names]
        return ", ".join(
            node.module if node.module in FORBIDDEN_IMPORTS else name
            for name, each in zip(taken, node.names, strict=True)
            if node.module in FORBIDDEN_IMPORTS or (node.module, each.name) in FORBIDDEN_METHODS
        )
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
        return node.func.id
    if isinstance(node.func, ast.Attribute):
        owner = getattr(node.func.value, "id", "")
        if (owner, node.func.attr) in FORBIDDEN_METHODS:
            return f"{owner}.{node.func.attr}"
        if node.func.attr == "from_string" and file not in TEMPLATE_READERS:
            return "from_string"
    given = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
    wrong = [name for name in FORBIDDEN_FLAGS if given.get(name) is True]
    wrong += [name for name in FORBIDDEN_ABSENCES if given.get(name) is False]
    return ", ".join(wrong)


def _compared_words(node: ast.AST) -> Iterator[str]:
    """String constants that a value is compared with, matched against or tested to start with."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.MatchValue):
        parts = [node.value]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {
        *("startswith", "endswith", "removeprefix"),
    }:
        parts = list(node.args)
    for part in parts:
        for each in ast.walk(part):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value.lower().rstrip("-_/:")


@cache
def _texts() -> tuple[Path, ...]:
    """Text files that are part of the repository."""
    folders = (*PACKAGES, "tests", "docs", "benchmarks", "constraints", ".ci")
    files = [file for file in ROOT.iterdir() if file.is_file()]
    for name in folders:
        found = (file for file in ROOT.joinpath(name).rglob("*") if file.is_file())
        # What is fetched or built for the admin pages is not ours, and never committed.
        files += [file for file in found if not {"node_modules", "built"} & set(file.parts)]
    return tuple(
        file
        for file in sorted(files)
        # `.git` is a file, not a folder, in a linked worktree.
        if file.suffix in TEXT_SUFFIXES and not {".git", "__pycache__", "results"} & set(file.parts)
    )

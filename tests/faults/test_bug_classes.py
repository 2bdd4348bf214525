"""Eighteen classes of bugs of other gateways: SECURITY.md names each, and what prevents it."""

import ast
import re
import secrets
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.init import prepare
from gateway.configuration.reading import load_settings
from gateway.errors import ConfigurationInvalid, Unauthenticated
from gateway.identity import KeyDigest, KeyRecord, Peppers, authenticate, issue_key, key_table
from gateway.providers.egress.client import Egress
from gateway.providers.outlets.webhook import WebHook
from gateway.secrets.credentials import admin_token, pepper
from gateway.secrets.secret import Secret
from gateway.types import Principal
from tests.test_tidy import name_of, parsed, sources
from tests.upstreams import Answer, RecordingUpstream


ROOT = Path(__file__).resolve().parent.parent.parent
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
CLASSES = 18


def rows() -> list[tuple[int, str]]:
    text = ROOT.joinpath("SECURITY.md").read_text(encoding="utf-8")
    return [(int(number), tests) for number, _, _, tests in ROW.findall(text)]


def test_every_class_is_held_by_tests_that_exist() -> None:
    listed = rows()
    missing = [
        f"{file}::{name}"
        for _, tests in listed
        for file, name in TEST.findall(tests)
        if not re.search(
            rf"^(?:    )?(?:async )?def {name}\(", ROOT.joinpath(file).read_text(), re.MULTILINE
        )
    ]

    assert [number for number, _ in listed] == list(range(1, CLASSES + 1))
    assert [number for number, tests in listed if not TEST.search(tests)] == []
    assert missing == []


# --- 5: SQL made of text ------------------------------------------------------------------------

RUNS_SQL = {"text", "execute", "exec_driver_sql", "execute_fetchall", "executemany"}


def made_of_text(tree: ast.AST) -> list[int]:
    """Lines in which a statement is formatted or joined where it is run."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        first = node.args[0]
        is_text = isinstance(first, ast.JoinedStr) and any(
            isinstance(each, ast.FormattedValue) for each in first.values
        )
        is_joined = isinstance(first, ast.BinOp) and isinstance(first.op, ast.Add | ast.Mod)
        if name in RUNS_SQL and (is_text or is_joined):
            found.append(node.lineno)
    return found


# What is formatted there is ours: a name of a channel, a number of a pragma, a name of a table.
OWN_NAMES = {"gateway/store/revisions.py", "gateway/store/preparing.py"}


def test_no_statement_is_made_of_text() -> None:
    found = {
        name_of(file): lines
        for file in sources()
        if not name_of(file).startswith("migrations/") and (lines := made_of_text(parsed(file)))
    }

    assert found.keys() <= OWN_NAMES, found
    assert made_of_text(ast.parse('connection.execute(f"SELECT {name}")'))
    assert made_of_text(ast.parse('connection.execute(text("SELECT " + name))'))
    assert not made_of_text(ast.parse('connection.execute(select(table), {"name": name})'))


# --- 6: cache keys that collide -----------------------------------------------------------------


@given(st.integers(0, 42), st.binary(min_size=64, max_size=64))
def test_keys_that_share_all_but_one_letter_never_share_an_identity(
    place: int, drawn: bytes
) -> None:
    peppers = Peppers({1: b"p" * 32})
    stream = iter(drawn * 40)
    key = issue_key(lambda count: bytes(next(stream) % 248 for _ in range(count)))
    text = key.reveal()
    principal = Principal(key.key_id, "k", "acme", "w", "p", (), None, ())
    kept = KeyRecord(key.key_id, (KeyDigest(1, peppers.digest(text, 1)),), principal, 0, "a test")
    table = key_table(1, [kept])
    at = len("gw_live_") + 13 + place
    other = text[:at] + ("a" if text[at] != "a" else "b") + text[at + 1 :]

    def ask(presented: str) -> Principal:
        return authenticate(table, peppers, [(b"x-api-key", presented.encode())], 1)

    assert ask(text).key_id == key.key_id
    with pytest.raises(Unauthenticated):
        ask(other)


# --- 7: default secrets -------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    "value",
    [
        *("secret", "changeme", "a" * 44, "this-is-an-example-of-a-token-1234567890"),
        *("my-very-long-password-for-the-gateway", "short-1234"),
    ],
)
async def test_the_start_is_refused_on_secrets_that_everybody_has(
    tmp_path: Path, value: str
) -> None:
    settings = load_settings(await prepare(tmp_path), {})
    pepper(settings)
    admin_token(settings)
    for file, read in (("pepper.key", pepper), ("admin.token", admin_token)):
        path = tmp_path / "var" / file
        good = path.read_text()
        path.write_text(value)
        with pytest.raises(ConfigurationInvalid) as caught:
            read(settings)
        assert f'"{value}"' not in caught.value.message
        path.write_text(good)


# --- what operators are told goes through the one egress ----------------------------------------


@pytest.mark.anyio
async def test_a_web_hook_gets_its_message_and_a_failing_one_is_not_taken() -> None:
    egress = Egress()
    credential = Secret(secrets.token_hex(8))
    async with RecordingUpstream() as upstream:
        hook = WebHook("alerts", f"{upstream.url}/v1/chat/completions", credential, egress)
        upstream.answer(Answer(body=b"{}"))
        taken = await hook.post(b'{"event":"budget.used"}')
        upstream.answer(Answer(status=500))
        refused = await hook.post(b"{}")
        request = upstream.requests[0]
    gone = await hook.post(b"{}")
    await egress.close()

    assert (taken, refused, gone) == (True, False, False)
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.body == b'{"event":"budget.used"}'
    assert request.headers["authorization"] == f"Bearer {credential.reveal()}"


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "ftp://example.org", "https://a@b/"])
def test_a_web_hook_has_an_address_that_the_egress_may_call(url: str) -> None:
    with pytest.raises(ConfigurationInvalid):
        WebHook("alerts", url, None, Egress())


# --- 13: regular expressions without an end ------------------------------------------------------


def patterns_from_callers(tree: ast.AST) -> list[int]:
    """Lines in which a function runs a pattern it was given, by what is not linear in time."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given_names = {each.arg for each in [*function.args.args, *function.args.kwonlyargs]}
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            owner = getattr(getattr(node.func, "value", None), "id", "")
            is_run = owner == "re" and getattr(node.func, "attr", "") != "escape"
            first = node.args[0]
            if is_run and isinstance(first, ast.Name) and first.id in given_names:
                found.append(node.lineno)
    return found


def test_patterns_from_outside_run_in_linear_time_only() -> None:
    found = {
        name_of(file): lines for file in sources() if (lines := patterns_from_callers(parsed(file)))
    }

    assert found == {}
    assert patterns_from_callers(ast.parse("def f(p, t):\n    return re.search(p, t)"))
    assert not patterns_from_callers(ast.parse("def f(p, t):\n    return re2.search(p, t)"))

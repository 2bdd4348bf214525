"""`gatewright keys …`: a key is shown once, listed without its secret, revoked and rotated."""

import asyncio
import json
from typing import Any

import pytest

from gateway.cli.deeds import actor
from gateway.cli.keys import opened_keys
from gateway.configuration.reading import load_settings
from gateway.errors import NotReady
from gateway.identity import KeyRecord, key_id_of
from tests.cli.operator import Ended, Operator


PLACE = ("--organisation", "acme", "--workspace", "research", "--project", "assistant")


def _issue(operator: Operator, *more: str) -> str:
    ended = operator.config("keys", "issue", *PLACE, "--name", "a key", *more)
    assert ended.status == 0
    key_id = key_id_of(ended.last_line)
    assert key_id is not None
    return key_id


def _lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.status == 0
    return [json.loads(line) for line in ended.output.splitlines()]


def test_an_issued_key_is_printed_once_and_listed_without_its_secret(operator: Operator) -> None:
    issued = operator.config("keys", "issue", *PLACE, "--name", "a key")
    text = issued.last_line
    listed = operator.config("keys", "list")

    assert issued.output == f"{text}\n"
    (line,) = _lines(listed)
    assert line["key_id"] == key_id_of(text)
    assert line["live"] is True
    assert text.split("_")[3] not in listed.output


def test_labels_scope_and_expiry_are_kept(operator: Operator) -> None:
    scope = ("--model", "gpt-6-luna", "--model", "gatewright-demo")
    _issue(operator, *scope, "--label", "batch", "--expires-days", "2")
    (line,) = _lines(operator.config("keys", "list"))

    assert line["labels"] == ["batch"]
    assert line["models"] == ["gatewright-demo", "gpt-6-luna"]
    assert line["expires_us"] - line["created_us"] < 2 * 86_400_000_001


def test_a_key_says_who_made_it_how_it_translates_and_that_it_is_over(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.keys.DAY_US", 1)
    _issue(operator, "--expires-days", "1", "--translation", "strict")
    (line,) = _lines(operator.config("keys", "list"))
    assert (line["live"], line["revoked_us"]) == (False, None)

    async def record() -> KeyRecord:
        async with opened_keys(load_settings(operator.config_file)) as store:
            (found,) = await store.keys()
            return found

    made = asyncio.run(record())
    assert (made.created_by, made.principal.translation) == (actor(), "strict")


def test_a_key_whose_limits_could_not_be_set_is_no_key(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise NotReady("the database does not answer")

    monkeypatch.setattr("gateway.cli.keys.limit_new_key", away)
    ended = operator.config("keys", "issue", *PLACE, "--name", "a key")
    assert (ended.status, ended.output) == (2, "")
    (line,) = _lines(operator.config("keys", "list"))
    assert line["live"] is False


def test_an_order_that_is_typed_again_with_its_mark_makes_one_key(operator: Operator) -> None:
    key_id = _issue(operator, "--mark", "nightly00001")
    again = ("keys", "issue", *PLACE, "--name", "a key", "--mark")
    refused = operator.config(*again, "nightly00001")
    assert (refused.status, refused.output) == (2, "")
    assert refused.errors == "gatewright: this key was issued already\n"
    assert operator.config(*again, "too short").status == 2
    (line,) = _lines(operator.config("keys", "list"))
    assert (line["key_id"], line["live"]) == (key_id, True)
    assert _issue(operator, "--mark", "nightly00002") != key_id


def test_a_list_of_one_organisation_holds_no_other_ones_keys(operator: Operator) -> None:
    ours = _issue(operator)
    theirs = _issue(operator, "--organisation", "globex")

    for organisation, key_id in (("acme", ours), ("globex", theirs)):
        (line,) = _lines(operator.config("keys", "list", "--organisation", organisation))
        assert line["key_id"] == key_id
    unknown = operator.config("keys", "list", "--organisation", "initech")
    assert (unknown.status, unknown.errors) == (2, "gatewright: there is no organisation initech\n")


def test_a_revoked_key_is_listed_as_ended_and_revoking_again_is_no_error(
    operator: Operator,
) -> None:
    key_id = _issue(operator)
    assert operator.config("keys", "revoke", key_id).output == f"revoked {key_id}\n"
    assert operator.config("keys", "revoke", key_id).status == 0
    (line,) = _lines(operator.config("keys", "list"))

    assert line["live"] is False
    assert line["revoked_us"] is not None


def test_a_rotated_key_keeps_its_id_and_gets_another_secret(operator: Operator) -> None:
    first = operator.config("keys", "issue", *PLACE, "--name", "a key").last_line
    key_id = first.split("_")[2]
    second = operator.config("keys", "rotate", key_id, "--overlap-s", "60")

    assert second.status == 0
    assert key_id_of(second.last_line) == key_id
    assert second.last_line != first


def test_a_rotation_typed_again_does_not_end_the_secret_in_use(operator: Operator) -> None:
    def secrets() -> str:
        (line,) = _lines(operator.config("keys", "list"))
        return str(line["secrets"])

    rotate = ("keys", "rotate", _issue(operator), "--overlap-s", "600")
    before = secrets()
    assert operator.config(*rotate).status == 0
    after = secrets()
    for again, said in (
        ((), "the older one ends now. Nothing was done. (--ends-former)"),
        (("--secrets", before), "given another secret meanwhile. Nothing was done now."),
        (("--secrets", before, "--ends-former"), "given another secret meanwhile"),
    ):
        refused = operator.config(*rotate, *again)
        assert (refused.status, refused.output) == (2, ""), again
        assert said in refused.errors
        assert secrets() == after

    assert operator.config(*rotate, "--secrets", after).status == 0
    assert operator.config(*rotate, "--ends-former", "--overlap-s", "0").status == 0
    assert operator.config(*rotate).status == 0, "the overlap is over"


def test_a_key_that_is_not_there_is_refused(operator: Operator) -> None:
    for command in ("revoke", "rotate"):
        ended = operator.config("keys", command, "000000000000")
        assert (ended.status, ended.errors) == (2, "gatewright: there is no such key\n")


def test_a_revoked_key_cannot_be_rotated(operator: Operator) -> None:
    key_id = _issue(operator)
    operator.config("keys", "revoke", key_id)
    ended = operator.config("keys", "rotate", key_id)

    assert ended.status == 2
    assert ended.errors == "gatewright: a revoked key cannot be rotated\n"


def test_a_name_in_the_wrong_form_is_refused_with_the_form(operator: Operator) -> None:
    place = ("--organisation", "Acme Inc", "--workspace", "w", "--project", "p")
    ended = operator.config("keys", "issue", *place, "--name", "a key")

    assert ended.status == 2
    assert ended.errors.startswith("gatewright: organisation: use 1 to 63 lower-case letters")


def test_without_a_schema_the_command_says_what_to_run(operator: Operator) -> None:
    operator.config("database", "migrate", "--revision", "base")
    for command in (("keys", "list"), ("budgets", "list"), ("audit", "export")):
        ended = operator.config(*command)
        assert ended.status == 2
        assert "the database has no schema yet: run `gatewright " in ended.errors


@pytest.mark.parametrize(
    "wrong",
    [
        *(("--model", "nowhere"), ("--label", "a b"), ("--label", ""), ("--label", "a,b")),
        *(("--name", "a\nb"), ("--name", "a\u202eb")),
    ],
)
def test_what_a_page_would_refuse_of_a_new_key_is_refused_here(
    operator: Operator, wrong: tuple[str, str]
) -> None:
    refused = operator.config("keys", "issue", *PLACE, "--name", "a key", *wrong)
    assert (refused.status, refused.output) == (2, "")
    assert _lines(operator.config("keys", "list")) == []
    key_id = _issue(operator)
    if wrong[0] != "--name":
        change = ("keys", "change", "--organisation", "acme", key_id, "--reason", "r")
        assert operator.config(*change, *wrong).status == 2
        assert _lines(operator.config("keys", "proposals", "--organisation", "acme")) == []


def test_times_out_of_reason_are_refused(operator: Operator) -> None:
    key_id = _issue(operator)
    for amount in ("-1", "1e300", "nan", "9" * 20):
        assert operator.config("keys", "rotate", key_id, "--overlap-s", amount).status == 2
    for days in ("0", "99999999999999999999"):
        ended = operator.config("keys", "issue", *PLACE, "--name", "x", "--expires-days", days)
        assert ended.status == 2
    assert len(_lines(operator.config("keys", "list"))) == 1


@pytest.mark.parametrize(
    ("instead", "why"),
    [("garbage", "file is not a database"), ("folder", "unable to open database file")],
)
def test_a_database_that_is_none_is_refused_with_the_drivers_reason(
    operator: Operator, instead: str, why: str
) -> None:
    path = operator.folder / "var" / "gatewright.db"
    path.unlink()
    if instead == "folder":
        path.mkdir()
    else:
        path.write_text(instead)
    said = f"gatewright: the database does not answer: database.url: {path}: {why}\n"
    commands = (("keys", "list"), ("database", "migrate"), ("policy", "versions"))
    for command in (*commands, ("budgets", "set", "org:acme", "5")):
        ended = operator.config(*command)
        assert (ended.status, ended.errors) == (2, said)


def test_a_key_is_narrowed_at_once_and_widened_by_a_second_person(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed_by(name: str) -> None:
        for module in ("key_scopes", "deeds"):
            monkeypatch.setattr(f"gateway.cli.{module}.actor", lambda: f"os:{name}")

    def models() -> list[str] | None:
        (line,) = _lines(operator.config("keys", "list"))
        found: list[str] | None = line["models"]
        return found

    acme = ("--organisation", "acme")
    key_id = _issue(operator)
    typed_by("ann")
    change = ("keys", "change", *acme, key_id)
    assert operator.config(*change, "--model", "gatewright-demo").last_line == f"changed {key_id}"
    assert models() == ["gatewright-demo"]
    assert "say why" in operator.config(*change, "--all-models").errors
    assert "there is no model" in operator.config(*change, "--model", "nowhere").errors
    both = operator.config(*change, "--all-models", "--model", "gatewright-demo")
    assert (both.status, "nothing to name" in both.errors) == (2, True)
    proposal = operator.config(*change, "--all-models", "--reason", "the pilot").last_line
    assert models() == ["gatewright-demo"]

    agree = ("keys", "approve", *acme, proposal, "--comment", "agreed")
    assert operator.config(*agree).status != 0, "it is their own"
    typed_by("bob")
    assert operator.config("keys", "withdraw", *acme, proposal).status != 0, "it is ann's"
    assert operator.config(*agree).last_line == f"changed {key_id}"
    assert models() is None
    (told,) = _lines(operator.config("keys", "proposals", *acme))
    assert (told["state"], told["proposed_by"], told["decided_by"]) == (
        *("approved", "os:ann", "os:bob"),
    )
    operator.config(*change, "--model", "gatewright-demo")
    again = operator.config(*change, "--never-expires", "--all-models", "--reason", "r").last_line
    typed_by("ann")
    decline = ("keys", "decline", *acme, again, "--comment", "no")
    assert operator.config(*decline).last_line == "declined; the key stays as it is"
    assert models() == ["gatewright-demo"]


ISSUER = """
[callers.issuers.cluster]
issuer = "https://issuer.example.com"
audience = "gatewright"
jwks_file = "keys.json"
organisations = ["acme"]
"""
BOUND = ("--issuer", "cluster", "--subject", "system:serviceaccount:payments:assistant")


@pytest.fixture
def trusting(operator: Operator) -> Operator:
    """Whose settings name an issuer."""
    file = operator.folder / "gatewright.toml"
    file.write_text(file.read_text() + ISSUER)
    return operator


def test_a_key_that_tokens_prove_has_no_secret_to_print_or_to_rotate(trusting: Operator) -> None:
    issued = trusting.config("keys", "issue", *PLACE, "--name", "pods", *BOUND, "--claim", "azp=a")
    (line,) = _lines(trusting.config("keys", "list"))
    rotated = trusting.config("keys", "rotate", line["key_id"])

    assert issued.output == f"{line['key_id']}\n"
    assert line["workload"] == {
        "issuer": "cluster",
        "subject": "system:serviceaccount:payments:assistant",
        "claims": {"azp": "a"},
    }
    assert line["pepper_version"] is None
    assert rotated.status == 2
    assert "has no secret of ours" in rotated.errors
    pepper = _lines(trusting.config("secrets", "keys"))[-1]
    assert (pepper["key"], pepper["total"]) == ("pepper", 0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--subject", "x"), "mean nothing without --issuer"),
        (("--issuer", "cluster"), "use 1 to 256 visible ASCII characters"),
        (("--issuer", "clust", "--subject", "x"), "did you mean `cluster`?"),
        ((*BOUND[:2], "--subject", "system:\u0430ssistant"), "use 1 to 256 visible ASCII"),
        ((*BOUND[:2], "--subject", " x"), "use 1 to 256 visible ASCII"),
        ((*BOUND, "--claim", "azp"), "write NAME=VALUE"),
        ((*BOUND, "--claim", "a=1", "--claim", "a=2"), "write NAME=VALUE"),
        ((*BOUND, "--claim", "aud=x"), "name other claims than iss, sub, aud"),
        ((*BOUND, "--claim", "azp="), "value is 1 to 256 visible"),
        ((*BOUND, *(f"--claim=c{number}=1" for number in range(9))), "at most 8 claims"),
        ((*BOUND, "--organisation", "globex"), "there is no such issuer"),
    ],
)
def test_what_no_token_could_prove_is_not_bound(
    trusting: Operator, more: tuple[str, ...], said: str
) -> None:
    ended = trusting.config("keys", "issue", *PLACE, "--name", "pods", *more)

    assert ended.status == 2
    assert said in ended.errors
    assert _lines(trusting.config("keys", "list")) == []


def test_one_token_never_leads_to_two_keys_that_live(trusting: Operator) -> None:
    def bind(*more: str) -> Ended:
        return trusting.config("keys", "issue", *PLACE, "--name", "pods", *BOUND, *more)

    first = bind("--claim", "azp=a").last_line
    assert bind("--claim", "azp=b").status == 0
    for fitting in ((), ("--claim", "azp=a"), ("--claim", "azp=a", "--claim", "tid=t")):
        assert "bound to such tokens already" in bind(*fitting).errors
    assert "bound to such tokens already" in bind("--claim", "tid=t").errors
    assert trusting.config("keys", "revoke", first).status == 0
    assert bind("--claim", "azp=a").status == 0

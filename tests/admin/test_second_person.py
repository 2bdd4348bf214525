"""Who may decide what another asks for: by each role, in each place, and never for themselves."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from admin.second_person import (
    ASKED,
    PROPOSED,
    REASON_CHARS_MAX,
    reason_in,
    refused_erasure,
    refused_prices,
    refused_raise,
    refused_retirement,
    refused_widening,
)
from gateway.actors import NOBODYS, TOKENS_NAME
from gateway.errors import RequestInvalid
from gateway.oversight.access import (
    EVERYWHERE,
    ROLE_PERMISSIONS,
    ROLES,
    Grant,
    Permission,
    Person,
    Role,
)
from gateway.oversight.key_scope import KeyScope
from gateway.store.erasure.cases import ErasureCase
from gateway.store.evidence.retirements import Retirement, Shown
from gateway.store.identity.key_scopes import KeyProposal
from gateway.store.money.price_proposals import PriceProposal
from gateway.store.money.raises import BudgetRaise


SCOPE = KeyScope((), None, (), "warn")
Refusing = Callable[[Person, str], str]
"""What is said to somebody of what a name asks for in acme."""


def widening(person: Person, asked_by: str) -> str:
    found = KeyProposal("1", "acme", "k", "payroll", SCOPE, SCOPE, asked_by, "why", 0)
    return refused_widening(person, found)


def prices(person: Person, asked_by: str) -> str:
    return refused_prices(person, PriceProposal(1, 1, 0, asked_by, "why", 0, 0))


def erasure(person: Person, asked_by: str) -> str:
    case = ErasureCase("1", "acme", "", "gdpr", "T-1", "cora", 0, 0, asked_by=asked_by)
    return refused_erasure(person, case)


def retirement(person: Person, asked_by: str) -> str:
    return refused_retirement(
        person, Retirement("1", "w0", Shown((0, 0), (0, 0), 0), asked_by, "why", 0)
    )


def larger(person: Person, asked_by: str) -> str:
    asked = BudgetRaise("1", "acme", "ws:acme/a", "month", 1, 1, 2, 0, asked_by, "why", 0)
    return refused_raise(person, asked)


IN_PLACES: dict[Refusing, tuple[Permission, str, bool]] = {
    widening: (Permission.KEYS_APPROVE, PROPOSED, True),
    larger: (Permission.BUDGETS_SET, ASKED, True),
    prices: (Permission.PRICES_APPROVE, PROPOSED, False),
    erasure: (Permission.CONTENT_APPROVE_ERASURE, ASKED, True),
    retirement: (Permission.WORKERS_APPROVE_RETIREMENT, ASKED, False),
}
"""What it takes, what who asked is told, and whether it is of one organisation."""


@pytest.mark.parametrize("refusing", IN_PLACES)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_may_decide_does_so_where_it_holds_and_never_of_ones_own(
    refusing: Refusing, role: Role
) -> None:
    permission, own, is_of_one = IN_PLACES[refusing]
    for place, reaches in ((EVERYWHERE, True), ("acme", is_of_one), ("umbrella", False)):
        person = Person("ann", grants=frozenset({Grant(role, place)}))
        is_able = permission in ROLE_PERMISSIONS[role] and reaches
        said = refusing(person, "bob")
        assert (said == "") is is_able, (place, said)
        assert is_able or said.startswith("None of your roles"), place
        for same in ("ann", "Ann ", "os:ann", TOKENS_NAME, ""):
            assert refusing(person, same), same
            assert not is_able or refusing(person, same) == own, same


@pytest.mark.parametrize("refusing", IN_PLACES)
def test_whom_the_token_let_in_and_who_is_disabled_decides_nothing(refusing: Refusing) -> None:
    able = Person("ann", grants=frozenset(Grant(role, EVERYWHERE) for role in ROLES))
    assert refusing(able, "bob") == ""
    # Limits the token may set: there it is told that it is nobody.
    let_in = NOBODYS if refusing is larger else "None of your roles"
    assert refusing(replace(able, of_token=True), "bob").startswith(let_in)
    assert refusing(replace(able, is_disabled=True), "bob").startswith("None of your roles")


def test_a_reason_says_something_and_is_bounded() -> None:
    assert reason_in("  as agreed\n") == "as agreed"
    assert reason_in("x" * REASON_CHARS_MAX + "  ") == "x" * REASON_CHARS_MAX
    too_long = "x" * (REASON_CHARS_MAX + 1)
    for wrong, told in (
        ("", "give a reason"),
        (" \n", "give a reason"),
        (too_long, "characters: these are 1,001"),
    ):
        with pytest.raises(RequestInvalid, match=told) as refused:
            reason_in(wrong)
        assert refused.value.parameter == "reason"

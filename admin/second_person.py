"""What one person asks for and another decides: who may, and that both say why. Pure."""

from typing import Final

from gateway.actors import NOBODYS, same_person
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission, Person, allows
from gateway.store.custody.orders import CustodyChanged
from gateway.store.erasure.cases import ErasureCase
from gateway.store.evidence.retirements import Retirement
from gateway.store.identity.key_scopes import KeyProposal
from gateway.store.money.price_proposals import PriceProposal
from gateway.store.money.raises import BudgetRaise


PROPOSED: Final = "You proposed this, so another person must decide."
ASKED: Final = "You requested this, so another person must decide."
REASON_CHARS_MAX: Final = 1_000


def reason_in(text: str) -> str:
    """The reason why somebody asks or decides; raises RequestInvalid if it is empty or too long."""
    said = text.strip()
    if not said:
        raise RequestInvalid("give a reason; it is kept in the history", parameter="reason")
    if len(said) > REASON_CHARS_MAX:
        most = f"use at most {REASON_CHARS_MAX:,} characters"
        raise RequestInvalid(f"{most}: these are {len(said):,}", parameter="reason")
    return said


def require_asker(seen: str | None, asked_by: str) -> None:
    """Check that a hold or a case is still asked for by the person who was shown.

    Somebody else may have asked under the same id meanwhile. `seen` is the person whom a page or a
    program saw asking, None if it does not say.

    Raises:
        CustodyChanged: the person seen no longer asks, or somebody else does.
    """
    if seen is not None and seen != asked_by:
        raise CustodyChanged(f"{asked_by or 'nobody'} asks for it by now")


def refused_widening(person: Person, proposal: KeyProposal) -> str:
    """Why somebody may not widen a key's scope; empty if they may."""
    if not allows(person, Permission.KEYS_APPROVE, proposal.organisation):
        return "None of your roles may widen keys here."
    return PROPOSED if same_person(person.name, proposal.proposed_by) else ""


def refused_raise(person: Person, asked: BudgetRaise) -> str:
    """Why somebody may not raise a limit as another person asked; empty if they may.

    The admin token may set any limit, but is not a second person.
    """
    if person.of_token:
        return NOBODYS
    if not allows(person, Permission.BUDGETS_SET, asked.organisation):
        return "None of your roles may set limits here."
    return ASKED if same_person(person.name, asked.asked_by) else ""


def refused_prices(person: Person, proposal: PriceProposal) -> str:
    """Why somebody may not put prices in force; empty if they may."""
    if not allows(person, Permission.PRICES_APPROVE):
        return "None of your roles may approve prices, which apply to all organisations."
    return PROPOSED if same_person(person.name, proposal.proposed_by) else ""


def refused_erasure(person: Person, case: ErasureCase) -> str:
    """Why somebody may not decide about an erasure; empty if they may."""
    if not allows(person, Permission.CONTENT_APPROVE_ERASURE, case.organisation):
        return "None of your roles may approve erasures here."
    return ASKED if same_person(person.name, case.asked_by) else ""


def refused_retirement(person: Person, retirement: Retirement) -> str:
    """Why somebody may not retire a lost worker's name; empty if they may."""
    if same_person(person.name, retirement.asked_by):
        return ASKED
    if not allows(person, Permission.WORKERS_APPROVE_RETIREMENT):
        return "None of your roles may approve this, which concerns all organisations."
    return ""

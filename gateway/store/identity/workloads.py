"""Keys without a secret: the tokens they are bound to, checked, stored and kept from overlapping.

A token must lead to one key only. So no two live keys may be bound to tokens that could fit both,
in whichever organisation: the second key would take over, or block, the callers of the first.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.configuration.sections import IssuerSettings
from gateway.configuration.suggesting import closest
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.identity import Workload
from gateway.store.schema.tables import virtual_keys


CLAIMS_MAX: Final = 8
READ_ALREADY: Final = ("iss", "sub", "aud", "exp", "iat", "nbf", "jti")
"""Claims that are checked anyway, or that differ from token to token."""
_TEXT: Final = re.compile(r"[!-~](?:[ -~]{0,254}[!-~])?", re.ASCII)
_CLAIM: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}", re.ASCII)
_TAKEN: Final = "a key that lives is bound to such tokens already"


def workload_ordered(
    issuers: Mapping[str, IssuerSettings],
    organisation: str,
    issuer: str,
    subject: str,
    claims: Mapping[str, str],
) -> Workload:
    """The workload that somebody wants to bind a key to.

    Subjects and values are visible ASCII, as all issuers write them: no two that look alike differ.

    Raises:
        RequestInvalid: an issuer that is not trusted, or not here; a text that cannot be a claim's.
    """
    trusted = issuers.get(issuer)
    if trusted is None or not _is_for(trusted, organisation):
        # Answered like a missing one: whose it is, is nobody else's business.
        close = closest(issuer, issuers_for(issuers, organisation))
        reason = f"there is no such issuer{close}"
        raise RequestInvalid(reason, parameter="issuer")
    if _TEXT.fullmatch(subject) is None:
        reason = "use 1 to 256 visible ASCII characters, as in the `sub` of its tokens"
        raise RequestInvalid(reason, parameter="subject")
    if len(claims) > CLAIMS_MAX:
        raise RequestInvalid(f"at most {CLAIMS_MAX} claims", parameter="claims")
    for name, value in claims.items():
        if _CLAIM.fullmatch(name) is None or name in READ_ALREADY:
            reason = f"name other claims than {', '.join(READ_ALREADY)}, in letters and digits"
            raise RequestInvalid(reason, parameter="claims")
        if _TEXT.fullmatch(value) is None:
            reason = "a claim's value is 1 to 256 visible ASCII characters"
            raise RequestInvalid(reason, parameter="claims")
    return Workload(issuer, subject, tuple(sorted(claims.items())))


def issuers_for(issuers: Mapping[str, IssuerSettings], organisation: str) -> Collection[str]:
    """The names of issuers whose subjects may be bound in an organisation."""
    return [name for name, each in issuers.items() if _is_for(each, organisation)]


def stored(workload: Workload) -> dict[str, Any]:
    return {
        "issuer": workload.issuer,
        "subject": workload.subject,
        "claims": dict(workload.claims),
    }


def workload_of(kept: Mapping[str, Any] | None) -> Workload | None:
    if kept is None:
        return None
    return Workload(kept["issuer"], kept["subject"], tuple(sorted(kept["claims"].items())))


async def require_unbound(connection: AsyncConnection, wanted: Workload, now_us: int) -> None:
    """Raise ChangedMeanwhile if a valid key is bound to tokens that could fit both."""
    columns = virtual_keys.c
    query = select(columns.workload).where(
        columns.workload.is_not(None),
        columns.revoked_us.is_(None),
        or_(columns.expires_us.is_(None), columns.expires_us > now_us),
    )
    for kept in (await connection.execute(query)).scalars():
        other = workload_of(kept)
        if other is not None and _could_both_fit(wanted, other):
            raise ChangedMeanwhile(_TAKEN, parameter="subject")


def _could_both_fit(one: Workload, other: Workload) -> bool:
    if (one.issuer, one.subject) != (other.issuer, other.subject):
        return False
    theirs = dict(other.claims)
    return all(theirs.get(name, value) == value for name, value in one.claims)


def _is_for(issuer: IssuerSettings, organisation: str) -> bool:
    return not issuer.organisations or organisation in issuer.organisations

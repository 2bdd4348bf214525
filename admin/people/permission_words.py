"""Permissions in words, as they follow "may": one table for all that a handler can ask for."""

from collections.abc import Mapping
from typing import Final

from gateway.oversight.access import Permission


_P = Permission
PERMISSION_WORDS: Final[Mapping[Permission, str]] = {
    _P.OVERVIEW_READ: "see the overview",
    _P.TRAFFIC_READ: "see traffic, without its content",
    _P.POLICIES_READ: "read policies",
    _P.POLICIES_EDIT: "write drafts of policies",
    _P.POLICIES_APPROVE: "approve policies that others wrote",
    _P.POLICIES_PUBLISH: "put approved policies in force",
    _P.KEYS_READ: "see keys, never their secrets",
    _P.KEYS_ISSUE: "issue, narrow and revoke keys, propose that one may do more, and change teams",
    _P.KEYS_APPROVE: "let keys do more where another person proposed it",
    _P.BUDGETS_READ: "see budgets",
    _P.BUDGETS_ASK: "ask for a larger budget, which another person agrees to",
    _P.BUDGETS_SET: "set budgets and rate limits, and agree to larger ones that others ask for",
    _P.COSTS_READ: "see what requests cost",
    _P.AUDIT_READ: "read the audit log",
    _P.AUDIT_EXPORT: "export evidence from the audit log",
    _P.CONTENT_REVEAL: "ask to read kept content, and read it once agreed",
    _P.CONTENT_APPROVE_REVEAL: "let another person read kept content",
    _P.CONTENT_ERASE: "open erasure cases, and ask for a person's content to be erased",
    _P.CONTENT_APPROVE_ERASURE: "erase content where another person asked for it",
    _P.HOLDS_SET: "set and lift legal holds",
    _P.REVIEWS_SIGN: "sign reviews",
    _P.INCIDENTS_LEAD: "open and lead incidents",
    _P.OBLIGATIONS_SET: "choose which rules an organisation must keep",
    _P.BATCHES_MANAGE: "cancel batches and delete their files",
    _P.PEOPLE_READ: "see people and their roles",
    _P.PEOPLE_MANAGE: "invite people, and give and take roles",
    _P.SECRETS_SET: "set credentials of providers",
    _P.PRICES_PROPOSE: "propose prices",
    _P.PRICES_APPROVE: "approve prices that others proposed",
    _P.SYSTEM_READ: "see the state of the system",
    _P.SYSTEM_CONFIGURE: "operate the system: tests, drains, sinks, diagnostics",
    _P.WORKERS_RETIRE: "ask for the name of a lost worker to be retired",
    _P.WORKERS_APPROVE_RETIREMENT: "retire a lost worker's name where another person asked for it",
}

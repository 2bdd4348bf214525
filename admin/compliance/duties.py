"""The legal duties of whoever runs a gateway, and which check of ours shows each. Data only.

Articles are named as secondary sources name them, read on 22 November 2026: an engineer's list, not
counsel's word. `to_be_confirmed` says what in a line somebody must ask counsel. A duty whose check
is `organisational` cannot be proved here by anybody, and the page says so.
"""

from typing import Final

from msgspec import Struct

from gateway.obligations import Regime


ORGANISATIONAL: Final = "organisational"
_AT: Final = "/o/{organisation}/compliance"
PLACES: Final = {
    "signed": "/o/{organisation}/integrity",
    "exported": "/o/{organisation}/integrity",
    "verified": "/o/{organisation}/integrity",
    "kept": "/o/{organisation}/audit",
    "limited": f"{_AT}/retention",
    "sealed": f"{_AT}/reveals",
    "erasures": f"{_AT}/erasures",
    "reports": f"{_AT}/incidents",
    "incidents": f"{_AT}/incidents",
    "reviews": f"{_AT}/reviews",
    "four_eyes": "/o/{organisation}/policies",
    "people": "/people",
    "credentials": "/models/credentials",
    "transfers": "/models",
    "monitored": "/o/{organisation}/traffic/profiles",
    "sinks": "/system/sinks",
    "clock": "/system/configuration",
}
"""Of each check the screen that shows its evidence."""


class Duty(Struct, frozen=True):
    """One thing that a rule asks for."""

    regime: Regime
    source: str
    """Article, rule or control."""
    duty: str
    proof: str
    """What of Gatewright shows it; of an organisational one what somebody else must show."""
    check: str = ORGANISATIONAL
    to_be_confirmed: str = ""


_LOGS_KEPT: Final = "Records and proofs are never deleted; only content has a limit."
_SIGNED: Final = "Each record is in a Merkle log, whose checkpoints are signed even when idle."
_SEALED: Final = "Content is encrypted under a key for each person and day, or not kept at all."
_ERASED: Final = "Erasure cases destroy a person's keys, with a due date, two people and proof."
_CLOCKS: Final = "Incidents run the clock of this report from when they were noticed."
_TWO: Final = "Policies and prices are written by one person and put in force by another."
_REVIEWED: Final = "Reviews of saved views come due, are signed, and stand in the log."
_ROLES: Final = "Every page and route asks for a permission; roles give it, per organisation."
_ORG: Final = "Contracts, training and procedures of the organisation; nothing here shows them."
_FORCE: Final = "From 14 May 2027 by secondary sources."

DUTIES: Final[tuple[Duty, ...]] = (
    # GDPR
    Duty(
        "gdpr",
        "Articles 5(2), 24(1)",
        "Be able to demonstrate what was done with personal data",
        _SIGNED,
        "signed",
    ),
    Duty(
        "gdpr",
        "Article 5(1)(e)",
        "Keep personal data no longer than needed",
        "A retention class bounds how long content can be read.",
        "limited",
        "How many days are needed; the class only says how many there are.",
    ),
    Duty("gdpr", "Articles 12(3), 17", "Erase on request, within one month", _ERASED, "erasures"),
    Duty(
        "gdpr",
        "Article 18",
        "Restrict processing where a person asks for it",
        "A hold keeps content from destruction; that is less than restriction.",
        ORGANISATIONAL,
        "Whether a hold and closed reveals are enough.",
    ),
    Duty(
        "gdpr",
        "Articles 28, 44 to 46",
        "Send data to processors and other countries on a lawful ground only",
        "Each provider has a jurisdiction, which policy and the egress both check.",
        "transfers",
        "The contracts and clauses behind each provider.",
    ),
    Duty("gdpr", "Article 32(1)(a)", "Pseudonymise and encrypt", _SEALED, "sealed"),
    Duty(
        "gdpr",
        "Article 32(1)(d)",
        "Test regularly that the safeguards work",
        "A full verification reads the log again, from its first record on.",
        "verified",
    ),
    Duty("gdpr", "Article 33(1)", "Notify a breach within 72 hours", _CLOCKS, "reports"),
    Duty("gdpr", "Article 30", "Keep a register of processing", _ORG),
    Duty("gdpr", "Article 35", "Assess the impact of risky processing beforehand", _ORG),
    # DPDP
    Duty(
        "dpdp",
        "Rules 2025, rule 6(1)(a)",
        "Encrypt, mask or tokenise personal data",
        _SEALED,
        "sealed",
        _FORCE,
    ),
    Duty(
        "dpdp",
        "Rules 2025, rule 6(1)(b)",
        "Control who has access",
        _ROLES,
        "people",
        _FORCE,
    ),
    Duty(
        "dpdp",
        "Rules 2025, rule 6(1)(c)",
        "Log access, and review the logs",
        _REVIEWED,
        "reviews",
        _FORCE,
    ),
    Duty(
        "dpdp",
        "Rules 2025, rules 6(1)(e), 8(3)",
        "Keep logs for one year at least",
        _LOGS_KEPT,
        "kept",
        "Whether records without content are the logs that are meant.",
    ),
    Duty(
        "dpdp", "Rules 2025, rule 7", "Tell the Board in detail within 72 hours", _CLOCKS, "reports"
    ),
    Duty(
        "dpdp",
        "Act 2023, section 12; Rules 2025, rule 8",
        "Erase on request, with 48 hours' notice where a purpose lapsed",
        _ERASED,
        "erasures",
        "Whom the 48 hours of notice bind: the rule names large services.",
    ),
    Duty("dpdp", "Act 2023, sections 5, 6", "Give notice and obtain consent", _ORG),
    # CERT-In
    Duty(
        "cert-in",
        "Directions of 28 April 2022, (i)",
        "Synchronise clocks with NIC, NPL or what follows them",
        "Workers state each hour what their clock follows and how far off it is.",
        "clock",
        "Whether the named source is traceable to NIC or NPL.",
    ),
    Duty(
        "cert-in",
        "Directions of 28 April 2022, (ii)",
        "Report an incident within six hours",
        _CLOCKS,
        "reports",
    ),
    Duty(
        "cert-in",
        "Directions of 28 April 2022, (iv)",
        "Keep logs for a rolling 180 days",
        _LOGS_KEPT,
        "kept",
    ),
    Duty(
        "cert-in",
        "Directions of 28 April 2022, (iv)",
        "Keep those logs within Indian jurisdiction",
        "Where disks and the database stand nothing here can tell; whoever runs them can.",
    ),
    Duty("cert-in", "Directions of 28 April 2022, (iii)", "Name a point of contact", _ORG),
    # EU AI Act
    Duty(
        "ai-act",
        "Article 12",
        "Record events automatically over the lifetime of a high-risk system",
        _SIGNED,
        "signed",
        "Whether a use is high-risk; by secondary sources from 2 December 2027.",
    ),
    Duty(
        "ai-act",
        "Articles 19(1), 26(6)",
        "Keep those logs for six months at least",
        _LOGS_KEPT,
        "kept",
    ),
    Duty(
        "ai-act",
        "Article 26(5)",
        "Monitor how the system operates, and act on serious incidents",
        "Profiles of prompts and answers raise an alarm when they drift.",
        "monitored",
    ),
    Duty("ai-act", "Article 73", "Report serious incidents", "Incidents are kept.", "incidents"),
    Duty("ai-act", "Article 26(2)", "Give oversight to people who are competent", _ORG),
    Duty("ai-act", "Article 4", "See that staff understand what they use", _ORG),
    Duty(
        "ai-act",
        "Article 50(1)",
        "Tell people that they speak with a machine",
        "Every answer names its model in a header; what people see is the application's.",
    ),
    # HIPAA
    Duty("hipaa", "45 CFR 164.312(b)", "Record activity", _SIGNED, "signed"),
    Duty(
        "hipaa",
        "45 CFR 164.308(a)(1)(ii)(D)",
        "Examine the records of activity regularly",
        _REVIEWED,
        "reviews",
    ),
    Duty(
        "hipaa",
        "45 CFR 164.312(c)(1)",
        "Protect records from improper alteration",
        "A full verification reads the log again, from its first record on.",
        "verified",
    ),
    Duty("hipaa", "45 CFR 164.312(a)(1)", "Control who has access", _ROLES, "people"),
    Duty("hipaa", "45 CFR 164.312(a)(2)(iv)", "Encrypt what is kept", _SEALED, "sealed"),
    Duty(
        "hipaa", "45 CFR 164.316(b)(2)(i)", "Keep documentation for six years", _LOGS_KEPT, "kept"
    ),
    Duty("hipaa", "45 CFR 164.410", "Tell of breaches within 60 days", "Incidents.", "incidents"),
    Duty("hipaa", "45 CFR 164.308(b)(1)", "Have contracts with business associates", _ORG),
    # ISO 27001
    Duty("iso27001", "Annex A 8.15", "Produce, store and protect logs", _SIGNED, "exported"),
    Duty("iso27001", "Annex A 8.15", "Analyse logs", _REVIEWED, "reviews"),
    Duty(
        "iso27001",
        "Annex A 8.16",
        "Monitor for what is out of the ordinary",
        "Profiles of prompts and answers raise an alarm when they drift.",
        "monitored",
    ),
    Duty(
        "iso27001",
        "Annex A 8.17",
        "Synchronise clocks",
        "Workers state each hour what their clock follows and how far off it is.",
        "clock",
    ),
    Duty("iso27001", "Annex A 5.3", "Segregate conflicting duties", _TWO, "four_eyes"),
    Duty("iso27001", "Annex A 5.18", "Review who has access", _ROLES, "people"),
    Duty(
        "iso27001",
        "Annex A 8.24",
        "Manage keys",
        "Credentials of the database are sealed, versioned and switched without a restart.",
        "credentials",
    ),
    Duty("iso27001", "Annex A 8.32", "Manage changes", _TWO, "four_eyes"),
    Duty("iso27001", "Clauses 4 to 10", "Run a management system", _ORG),
    # ISO 42001
    Duty(
        "iso42001",
        "Annex A 6.2.6",
        "Monitor AI systems in operation",
        "Profiles of prompts and answers raise an alarm when they drift.",
        "monitored",
        "Numbers of controls are from secondary sources.",
    ),
    Duty("iso42001", "Annex A 6.2.8", "Record events of AI systems", _SIGNED, "signed"),
    Duty("iso42001", "Annex A 8.4", "Communicate incidents", "Incidents are kept.", "incidents"),
    Duty(
        "iso42001",
        "Annex A 10.3",
        "Know what suppliers provide",
        "Each model has a provider, a jurisdiction and what its contract promises.",
        "transfers",
    ),
    Duty("iso42001", "Annex A 5.2", "Assess the impact of AI systems", _ORG),
    # RBI
    Duty(
        "rbi",
        "IT Governance directions, 7 November 2023: audit trails",
        "Keep audit trails that can be relied on",
        _SIGNED,
        "verified",
        "The paragraph's number.",
    ),
    Duty(
        "rbi",
        "IT Governance directions, 7 November 2023: change management",
        "Change with approval, and be able to go back",
        _TWO,
        "four_eyes",
        "The paragraph's number.",
    ),
    Duty(
        "rbi",
        "Outsourcing of IT services, 10 April 2023",
        "Know which providers get data, and where",
        "Each provider has a jurisdiction, which policy and the egress both check.",
        "transfers",
        "The contracts, the right to audit and the plan of exit behind each provider.",
    ),
    Duty("rbi", "Outsourcing of IT services, 10 April 2023", "Govern outsourcing", _ORG),
    # SOC 2
    Duty("soc2", "CC6.1, CC6.3", "Restrict access by role", _ROLES, "people"),
    Duty(
        "soc2",
        "CC6.1",
        "Protect secrets",
        "Credentials of the database are sealed, versioned and switched without a restart.",
        "credentials",
    ),
    Duty(
        "soc2",
        "CC7.2",
        "Monitor, and keep evidence over the whole period",
        "Sinks pass every record on to systems outside.",
        "sinks",
    ),
    Duty("soc2", "CC7.3, CC7.4", "Respond to incidents", "Incidents are kept.", "incidents"),
    Duty("soc2", "CC8.1", "Authorise and approve changes", _TWO, "four_eyes"),
    Duty("soc2", "CC1 to CC5", "Govern, communicate and assess risks", _ORG),
)

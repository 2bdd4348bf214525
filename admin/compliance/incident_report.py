"""The report of an incident as text: a template filled from evidence, blanks elsewhere. Pure.

It holds numbers, names of keys and targets, and times; nothing that anybody wrote to a model.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from admin.compliance.incident_room import Counted, IncidentDetail
from gateway.obligations import TITLES
from gateway.store.custody.incidents import Incident, Running


BLANK = "[to be filled in]"
_SHOWN = 20


def report_text(detail: IncidentDetail, names: Mapping[str, str]) -> str:
    """Plain text in UTC, for whoever sends it on; `names` are those of keys, by id."""
    incident, scope = detail.incident, detail.scope
    at_least = "" if scope.is_all else "at least "
    lines = [
        f"INCIDENT REPORT {incident.id}",
        f"Made {_at(detail.now_us)} from the audit log; figures are counted, not estimated.",
        "",
        f"Organisation: {incident.organisation}",
        f"Contact: {BLANK}",
        f"What: {incident.title} ({incident.kind})",
        f"Ticket: {incident.ticket or '-'}",
        f"Noticed: {_at(incident.noticed_us)}",
        f"Concerns records from {_at(incident.since_us)} to "
        + (_at(incident.until_us) if incident.until_us else "now; it may still go on"),
        f"Which of them: {incident.filter or 'all'}",
        "",
        "WHOM AND WHAT IT CONCERNS",
        f"Requests: {at_least}{scope.requests}",
        f"End users named by them: {at_least}{scope.subjects} (keyed digests)",
        f"Requests that name no end user: {at_least}{scope.unnamed}",
        *_list("Keys", scope.keys, names),
        *_list("Answered by", scope.targets),
        *_list("Where that is", scope.jurisdictions),
        *_list("Kinds of personal data found", scope.findings),
        f"Likely consequences: {BLANK}",
        f"Cause: {BLANK}",
        "",
        "WHAT WAS DONE",
        *([] if detail.are_all_deeds else ["[earlier deeds are in the audit log alone]"]),
        *(f"{_at(row.utc_us)}  {row.action}  {row.actor}" for row in reversed(detail.deeds)),
        f"What will be done: {BLANK}",
        f"What came of it: {_conclusion(incident)}",
        "",
        "REPORTS",
        *(_clock(each) for each in detail.clocks),
        *([] if detail.clocks else ["No rule with a clock is configured for this organisation."]),
        "",
        "EVIDENCE",
        f"The log was signed for {detail.checkpoint_size} records, {_at(detail.checkpoint_us)}"
        if detail.checkpoint_size
        else "The log was not signed yet.",
        f"Root: {detail.checkpoint_root or '-'}",
        "",
        "The hours above are engineering figures with their sources; counsel confirms them.",
    ]
    return "\n".join(lines) + "\n"


def _conclusion(incident: Incident) -> str:
    """What two people said; what one proposed is no conclusion, and what was declined is none."""
    if incident.closed_us:
        return incident.conclusion
    if incident.closing_by:
        return f"{incident.conclusion} [so {incident.closing_by}; a second person is to agree]"
    return BLANK


def _list(title: str, found: Sequence[Counted], names: Mapping[str, str] = {}) -> list[str]:
    shown = [f"  {_called(each.name, names)}: {each.requests}" for each in found[:_SHOWN]]
    more = [f"  and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return [f"{title}:" if found else f"{title}: none", *shown, *more]


def _called(known_as: str, names: Mapping[str, str]) -> str:
    """A key by its name, too. Keys of old databases may be called what would break the line."""
    name = "".join(char if char.isprintable() else "\ufffd" for char in names.get(known_as, ""))
    return f"{name} ({known_as})" if name else known_as


def _clock(running: Running) -> str:
    clock, report = running.clock, running.report
    due = f"due {_at(running.due_us)}" if running.due_us else "due without delay"
    said = f"- {TITLES[clock.regime]}: to {clock.to}, {due} ({clock.source})"
    if clock.to_be_confirmed:
        said += f"; to be confirmed: {clock.to_be_confirmed}"
    if report is not None:
        reference = f", {report.reference}" if report.reference else ""
        said += f"; {running.state} {_at(report.reported_us)}{reference}"
    else:
        said += f"; {running.state}"
    return said


def _at(utc_us: int) -> str:
    return datetime.fromtimestamp(utc_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

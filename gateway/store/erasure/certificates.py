"""The current certificate of an erasure, amended by what each audit folder reported.

What was written in the folder where the erasure was agreed to stays unchanged. The full certificate
is put together each time it is asked for and names the folders that have not reported, so it never
claims what is not so.
"""

from typing import Any, Final

import msgspec
from msgspec import structs

from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.erased_records import PROOFS_MAX
from gateway.store.erasure.folder_reports import FolderReport
from gateway.store.erasure.outstanding import Reach


_SUMS: Final = ("records", "checked", "contents_unreadable", "proofs_hold")
_MOST: Final = ("records_looked_at", "records_unreadable")
"""Each folder reports these about the same records, so the largest number stands for all."""


def told_of(case: ErasureCase, reach: Reach) -> dict[str, Any]:
    """The present content of the certificate; empty if nothing was carried out."""
    if not case.certificate:
        return {}
    said = msgspec.json.decode(case.certificate, type=dict[str, Any])
    for report in reach.reports:
        said = _amended(said, report)
    left = reach.workers_outstanding
    copies = [structs.asdict(copy) for copy in case.copies]
    arriving = said.get("kept_arriving", ())
    if "kept" in said and not {"kept_arriving", "kept_arrived"}.isdisjoint(said):
        said["kept"] |= {"arriving": len(arriving)}
        said["kept_all_looked_at"] = said["kept_all_looked_at"] and not arriving
    return said | {
        "all_looked_at": said["all_looked_at"] and not left,
        "workers_elsewhere": left,
        "folders": [_told(each) for each in reach.reports],
        "folders_outstanding": [structs.asdict(each) for each in reach.outstanding],
        "complete": reach.is_complete and not arriving,
        "reached_us": case.reached_us if reach.is_complete else 0,
        "vendor_copies": copies,
        "vendor_copies_left": case.copies_left,
    }


def certified(case: ErasureCase, reach: Reach) -> bytes:
    """The same as the file that is handed out; empty if nothing was carried out."""
    told = told_of(case, reach)
    return msgspec.json.encode(told) if told else b""


def _amended(said: dict[str, Any], report: FolderReport) -> dict[str, Any]:
    """Add what one folder destroyed; the folder that wrote the certificate adds nothing."""
    keys = dict.fromkeys([*said["keys_destroyed"], *(key.key for key in report.found)])
    said = said | {"keys_destroyed": list(keys)}
    if not report.checked:
        return said
    seen = msgspec.json.decode(report.checked, type=dict[str, Any])
    damaged = said.get("key_lines_damaged", 0) + seen.get("key_lines_damaged", 0)
    said |= {"key_lines_damaged": damaged}
    if "records" not in seen:
        return said
    said |= {name: said.get(name, 0) + seen[name] for name in _SUMS}
    said |= {name: max(said.get(name, 0), seen[name]) for name in _MOST}
    return said | {
        "all_looked_at": said["all_looked_at"] and seen["all_looked_at"],
        "proofs": [*said["proofs"], *seen["proofs"]][:PROOFS_MAX],
        "keys": list(dict.fromkeys([*said["keys"], *seen["keys"]])),
        "checkpoint": said["checkpoint"] or seen["checkpoint"],
    }


def _told(report: FolderReport) -> dict[str, Any]:
    return {
        "folder": report.folder,
        "workers": report.workers,
        "by": report.told_by,
        "seen_us": report.seen_us,
        "done_us": report.done_us,
        "keys_destroyed": [key.key for key in report.found],
        "keys_younger": report.younger,
    }

"""The page of one audit record, and its proof for whoever verifies it."""

from typing import Any, Final

from litestar import MediaType, Response, get, route
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from admin.access import needs
from admin.asking import Asking
from admin.audit.changes import changes_of
from admin.evidence import EvidenceReader
from admin.services import Services
from admin.sign_in.pages import READING
from gateway.audit.projecting.projection import SequencedRecord
from gateway.oversight.access import Permission
from gateway.oversight.deeds import OPERATORS
from gateway.store.evidence.proofs import Proof


_READ: Final = needs(Permission.AUDIT_READ)
_EVERYWHERE: Final = needs(Permission.AUDIT_READ, "everywhere")
_OWN: Final = "/o/{organisation:str}/audit/{log:str}/{sequence:int}"
_OWN_PROOF: Final = "/api/organisations/{organisation:str}/audit/{log:str}/{sequence:int}/proof"


class Records:
    """Records that may be seen from an organisation; from the installation where it is empty."""

    def __init__(self, services: Services) -> None:
        self._shell = services.shell
        self._evidence = EvidenceReader(services)

    async def page(
        self, request: Asking, organisation: str, log: str, sequence: int
    ) -> Response[str]:
        """Raises NotFoundException."""
        row = await self._row(organisation, log, sequence)
        record = row.projected.record if row.projected.raw_json else None
        base = f"/api/organisations/{organisation}/audit" if organisation else "/api/audit"
        place = f"{log}/{sequence}" if organisation else str(sequence)
        return await self._shell.page(
            request,
            "audit/record.html",
            "audit" if organisation else "audit-installation",
            record=record,
            changes=changes_of(record.detail) if record else (),
            evidence=await self._evidence.of(log, row),
            proof_path=f"{base}/{place}/proof",
            organisation=organisation,
            log=log,
            sequence=sequence,
        )

    async def proof(self, organisation: str, log: str, sequence: int) -> Proof:
        """Raises NotFoundException, also while no checkpoint covers the record."""
        proof = await self._evidence.proof(log, await self._row(organisation, log, sequence))
        if proof is None:
            raise NotFoundException
        return proof

    async def _row(self, organisation: str, log: str, sequence: int) -> SequencedRecord:
        """The organisation's own record, or a deed that is about it."""
        row = None
        if sequence > 0 and log in (organisation, OPERATORS):
            row = await self._evidence.record(log, sequence)
        if row is None or (organisation and log == OPERATORS and not _is_about(row, organisation)):
            raise NotFoundException
        return row


def record_routes(services: Services) -> list[Any]:
    """Pages and proofs."""
    records = Records(services)

    @route(_OWN, http_method=READING, media_type=MediaType.HTML, opt=_READ)
    async def record_page(
        request: Asking,
        organisation: FromPath[str],
        log: FromPath[str],
        sequence: FromPath[int],
    ) -> Response[str]:
        return await records.page(request, organisation, log, sequence)

    @route("/audit/{sequence:int}", http_method=READING, media_type=MediaType.HTML, opt=_EVERYWHERE)
    async def deed_page(request: Asking, sequence: FromPath[int]) -> Response[str]:
        return await records.page(request, "", OPERATORS, sequence)

    @get(_OWN_PROOF, opt=_READ)
    async def prove_record(
        organisation: FromPath[str], log: FromPath[str], sequence: FromPath[int]
    ) -> Proof:
        return await records.proof(organisation, log, sequence)

    @get("/api/audit/{sequence:int}/proof", opt=_EVERYWHERE)
    async def prove_deed(sequence: FromPath[int]) -> Proof:
        return await records.proof("", OPERATORS, sequence)

    return [record_page, deed_page, prove_record, prove_deed]


def _is_about(row: SequencedRecord, organisation: str) -> bool:
    projected = row.projected
    return bool(projected.raw_json) and projected.record.detail.get("organisation") == organisation

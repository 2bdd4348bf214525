"""`gatewright audit …`: proofs, packs, the full check and log keys, which need the whole log."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from gateway.audit.content_keys.erasure import damaged_keys
from gateway.audit.content_keys.masters import masters_of_contents
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.proving.checkpoints import SIGNERS_NAME, verifier_keys
from gateway.audit.proving.fsck import BadLog, SignedRoots, check_signed
from gateway.audit.proving.integrator import LogForked, TreeDamaged
from gateway.audit.proving.offline import Wrong, check_proof
from gateway.audit.proving.pack import PackRefused
from gateway.audit.proving.verify import parse_receipt, verify_directory, verify_receipt
from gateway.audit.second import is_second
from gateway.cli.damage import refusing_damage
from gateway.cli.known import require_organisation
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.cli.orderly import orderly
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.recording.evidence import UNKNOWN_COST
from gateway.secrets.credentials import master_key
from gateway.secrets.envelope import MasterKey
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.packing import NOT_YET, PackOrder, make_pack
from gateway.store.evidence.proofs import proof_of
from gateway.store.evidence.sink import AuditQuery
from gateway.store.evidence.told_deeds import CALLED_LOST, ToldDeeds
from gateway.store.policies.documents import PolicyStore
from gateway.store.sealing.right_keys import require_right_master


_AT_ONCE = 1_000
_UNTOLD = f'"cost":"{UNKNOWN_COST}"'.encode()
_NOT_NUMBERED = "have no number yet: a running worker gives it within seconds, else the next start"


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Integration]:
    clock = SystemClock()
    try:
        async with opened_database(settings, pooled=False) as database:
            # Also for proofs: what no checkpoint covers yet is signed for them.
            await require_right_master(settings, database, clock)
            with refusing_damage():
                yield Integration(settings, database, clock, master_key(settings))
    except (LogForked, TreeDamaged, PackRefused) as error:
        raise Refused(str(error)) from error
    except BrokenPipeError:
        raise  # The reader of the output has left.
    except OSError as error:
        raise Refused(f"{error.filename or 'the audit log'}: {error.strerror}") from error


@click.command("key")
@config_option
def show_key(config_file: Path) -> None:
    """Print the keys that verify this log's checkpoints; keep them where the log is not."""
    keys = _verifier_keys(load_settings(config_file))
    if not keys:
        raise Refused("no worker with segments here has a signing key yet, or they were lost")
    for key in keys:
        click.echo(key)


@click.command()
@config_option
@click.option("--receipt", required=True, help="What the answer's x-gatewright-receipt said.")
@asynchronous
async def prove(config_file: Path, receipt: str) -> None:
    """Prove that a receipt's record is in the signed log; the proof is JSON for verify.py."""
    settings = load_settings(config_file)
    async with _opened(settings) as parts:
        row = await _row_of(parts, receipt)
        organisation = row.projected.record.organisation
        checkpoint = await parts.checkpoint_of(organisation, row.sequence)
        if checkpoint is None:
            raise Refused(NOT_YET)
        proof = await proof_of(row, checkpoint, parts.trees, parts.directory)
    told = msgspec.to_builtins(proof)
    try:
        check_proof(told, told["keys"])
    except (Wrong, ValueError) as error:
        raise Refused(f"the proof would not hold: {error}; see {SIGNERS_NAME}") from error
    click.echo(json.dumps(told, indent=1))


async def _row_of(parts: Integration, text: str) -> SequencedRecord:
    receipt = parse_receipt(text)
    if receipt is None:
        raise Refused("this is no receipt: worker.segment.offset.leafhash expected")
    place = (receipt.worker, receipt.segment, receipt.offset_bytes)
    if is_second(receipt.worker):
        row = await parts.sink.at(place)
        if row is None or row.projected.leaf_hash != receipt.leaf_hash:
            raise Refused("the receipt does not hold: the record there is another one, or none")
        return row
    if not folder_lies_here(parts.directory / receipt.worker):
        raise Refused("there is no such worker here")
    row = await parts.sink.at(place)
    if row is not None and row.projected.leaf_hash == receipt.leaf_hash:
        # The proof is about its place in the signed tree, so the complete chain is not read.
        return row
    found = verify_receipt(parts.directory, text)
    if not found.ok:
        raise Refused(f"the receipt does not hold: {found.reason}")
    # Damage elsewhere hides no record that was numbered before.
    with suppress(ProjectionBroken):
        await parts.projector.catch_up()
    row = await parts.sink.at(place)
    if row is None:
        raise Refused(NOT_YET)
    return row


def open_line(worker: str, intents: int, since_us: int) -> str:
    """How many intents of a worker have no outcome, and since when."""
    since = datetime.fromtimestamp(since_us / 1e6, UTC).isoformat(timespec="seconds")
    return f"open: worker {worker}: {intents} without an outcome, the oldest of {since}"


@click.command()
@config_option
@asynchronous
async def fsck(config_file: Path) -> None:
    """Check every record against number, tree and checkpoints; exit status 1 when one is bad.

    What `gatewright audit verify` looks at, such as contents, is looked at here too, and with the
    master key the keys of the contents.
    """
    settings = load_settings(config_file)
    folder, master = settings.path(settings.audit.directory), master_key(settings)
    async with _opened(settings) as parts:
        keys = _verifier_keys(settings)
        records = verify_directory(folder).bad if folder_lies_here(folder) else ()
        damage = (*records, *damaged_keys(folder, master))
        for each in damage:
            click.echo(f"BAD: {each}")
        is_whole = not damage
        exported = parts.files.newest_of_all()
        lost = 0
        for organisation in sorted({*await parts.trees.sizes(), *exported}):
            bad, gone = await _check_log(parts, SignedRoots(organisation, keys))
            is_whole = is_whole and bad is None
            lost += gone
        waiting = await parts.projector.waiting()
        if not await _told_masters(parts, master, may_follow=bool(waiting)):
            is_whole = False
        if not waiting and lost > (declared := await ToldDeeds(parts.sink).declared_lost()):
            is_whole = False
            click.echo(f"BAD: {CALLED_LOST.format(lost, declared)}")
        for worker, count in waiting.items():
            click.echo(f"note: {count} records of worker {worker} {_NOT_NUMBERED}")
        for left in await parts.unended.read():
            click.echo(open_line(left.worker, left.requests, left.since_us))
    click.echo("the log is whole" if is_whole else "THE LOG IS NOT WHOLE")
    sys.exit(0 if is_whole else 1)


async def _told_masters(parts: Integration, own: MasterKey, *, may_follow: bool) -> bool:
    """Check that each line of the key files belongs to one of our master keys, or to a lost one.

    `may_follow`: the deed that declared it lost may be among records without a number yet.
    """
    counts = masters_of_contents(parts.directory)
    for key_id in own.key_ids:
        del counts[key_id]
    lost = await ToldDeeds(parts.sink).lost_masters()
    for master, count in sorted(counts.items()):
        said = f"{count} keys of contents are of master key {master}"
        if master in lost:
            click.echo(f"note: {said}, which was called lost: what they sealed is gone with it")
        else:
            mark = "note" if may_follow else "BAD"
            click.echo(f"{mark}: {said}, which no deed calls lost: whether they open is not known")
    return may_follow or counts.keys() <= lost


async def _check_log(parts: Integration, signed: SignedRoots) -> tuple[BadLog | None, int]:
    """What is wrong with one log, and how many of its records were declared lost."""
    organisation = signed.organisation
    await _add_numbered(parts, signed)
    kept, unread = _add_exported(parts, signed)
    rows = parts.sink.records(AuditQuery(organisation=organisation), strict=True)
    lost = await parts.recovery.awaited.lost_leaves(organisation)
    untold: list[int] = []
    count, bad = await check_signed(signed, _noting(rows, untold), parts.trees, lost)
    gone = [number for number in lost if number <= count]
    numbers = f"{count - len(gone)} records, {signed.count - kept} checkpoints, {kept} outside"
    click.echo(f"{organisation}: {numbers} of the database")
    if gone:
        click.echo(f"note: {len(gone)} records were declared lost: {_spans(gone)}")
    if untold:
        said = "answered at a cost that nobody can tell, and recorded at none"
        click.echo(f"note: {said}: records {_spans(untold)}")
    if unread:
        # A crash leaves one such line; somebody's change leaves more, or no complete one.
        click.echo(f"note: {unread} lines of the file with its checkpoints cannot be read")
    if bad is not None:
        click.echo(f"BAD: {bad}")
    return bad, len(lost)


async def _noting(
    rows: AsyncIterator[SequencedRecord], untold: list[int]
) -> AsyncIterator[SequencedRecord]:
    """The same rows; `untold` collects the numbers of those whose cost is unknown."""
    async for row in rows:
        # In the bytes, where texts have no bare quotes: decoding each would cost more than all the
        # rest.
        if _UNTOLD in row.projected.raw_json:
            untold.append(row.sequence)
        yield row


def _spans(numbers: Sequence[int]) -> str:
    """Numbers in order, as `3 to 7, 9`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


@click.command()
@config_option
@click.option("--organisation", required=True)
@click.option("--since", type=click.DateTime(), help="UTC; default: the beginning.")
@click.option("--until", type=click.DateTime(), help="UTC, exclusive; default: now.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@orderly
@asynchronous
async def pack(
    config_file: Path, organisation: str, since: datetime | None, until: datetime | None, file: Path
) -> None:
    """Write an evidence pack (.zip): records, proofs, checkpoints, keys, policies, verifier."""
    settings = load_settings(config_file)
    async with _opened(settings) as parts:
        order = PackOrder(
            organisation=organisation,
            since_us=_as_us(since, 0),
            until_us=_as_us(until, 2**62),
            policies=PolicyStore(parts.database, SystemClock()),
        )
        now_us = SystemClock().utc_us()
        try:
            first, last = await make_pack(parts, settings, order, file, created_us=now_us)
        except PackRefused:
            # Only now, since making it has numbered what the database did not know yet.
            await require_organisation(parts.database, organisation)
            raise
        except OSError as error:
            raise Refused(f"{error.filename or file}: {error.strerror}") from error
    click.echo(f"{file}: {last - first + 1} records ({first} to {last})")


async def _add_numbered(parts: Integration, signed: SignedRoots) -> None:
    """Add the checkpoints of the database, a few at a time."""
    since_us = 0
    while some := await parts.trees.between(signed.organisation, since_us, 2**62, _AT_ONCE):
        signed.add(some)
        since_us = some[-1].signed_us + 1


def _add_exported(parts: Integration, signed: SignedRoots) -> tuple[int, int]:
    """Add those outside the database; returns how many there are, and how many unreadable."""
    kept = unread = 0
    for each in parts.files.every(signed.organisation):
        kept, unread = kept + (each is not None), unread + (each is None)
        signed.add([each] if each is not None else [])
    return kept, unread


def _verifier_keys(settings: Settings) -> list[str]:
    try:
        return verifier_keys(settings.path(settings.audit.directory))
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}") from error


def _as_us(moment: datetime | None, default: int) -> int:
    if moment is None:
        return default
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1_000_000


PROOFS = (show_key, prove, fsck, pack)

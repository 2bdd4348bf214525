"""`gatewright secrets reseal`, `keys` and `make`: replace one key with another."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import click

from gateway.audit.content_keys.masters import KEYS_OF_CONTENTS, KEYS_THAT_SIGN
from gateway.audit.content_keys.rewrapping import rewrap_contents, rewrap_signers
from gateway.audit.disk import Disk
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.proving.checkpoints import sign_anew
from gateway.audit.segments import list_workers
from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.oversight.deeds import Deeds
from gateway.secrets.credentials import master_key, named_master_keys
from gateway.secrets.envelope import MasterKey, create_key_file
from gateway.store.engine import Database
from gateway.store.sealing.hanging import all_hanging, told
from gateway.store.sealing.keys_in_use import keys_in_use
from gateway.store.sealing.resealing import Resealing
from gateway.store.sealing.right_keys import require_right_master
from gateway.store.sealing.sealed_kinds import KINDS
from gateway.store.workers import WorkerTable


@click.command("make")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
def make_key(file: Path) -> None:
    """Write a new random key to a new file: the next master key, or the next pepper.

    Only its owner can read it, and a file that is there is not replaced.
    """
    create_key_file(file)
    click.echo(f"{file}: written")


@click.command("reseal")
@config_option
@click.option(
    "--new-signing-keys",
    is_flag=True,
    help="Also make other keys to sign the log with: after a leak.",
)
@asynchronous
@says_it_records
async def reseal(config_file: Path, *, new_signing_keys: bool) -> None:
    """Seal anew, by `secrets.master_key`, what hangs on `secrets.other_master_keys`.

    It goes beside workers that run, may be interrupted at any moment, and be run again. At the end
    it says what still hangs on which key; exit status 1 while anything hangs on another one. Run it
    on each machine that has an audit folder.
    """
    settings, clock = load_settings(config_file), SystemClock()
    directory = settings.path(settings.audit.directory)
    async with opened_database(settings, pooled=False) as database:
        keys = master_key(settings)
        await require_right_master(settings, database, clock, keys)
        after = {"key_id": keys.key_id, "instead_of": sorted(keys.key_ids - {keys.key_id})}
        async with opened_log(settings, keys) as log:
            doing = Deeds(log, clock).doing(actor(), "master_key.resealed", "", after=after)
            async with doing:
                await _reseal_database(Resealing(database, keys, clock))
                await _reseal_folder(directory, keys, new_signing_keys=new_signing_keys)
        is_done = await _told(settings, database, keys)
    sys.exit(0 if is_done else 1)


async def _reseal_database(resealing: Resealing) -> None:
    for kind in KINDS:
        done = await resealing.of(kind)
        if done.resealed:
            click.echo(f"{kind.name}: {done.resealed} sealed anew")
        if done.closed:
            click.echo(
                f"{kind.name}: {done.closed} open with none of the keys, and stay as they are"
            )


async def _reseal_folder(directory: Path, keys: MasterKey, *, new_signing_keys: bool) -> None:
    disk, moved = Disk(), Counter[str]()
    try:
        for worker in list_workers(directory) if folder_lies_here(directory) else []:
            folder = directory / worker
            moved[KEYS_OF_CONTENTS] += await asyncio.to_thread(rewrap_contents, folder, keys, disk)
            moved[KEYS_THAT_SIGN] += await asyncio.to_thread(rewrap_signers, folder, keys, disk)
        made = sign_anew(directory, keys, SystemClock(), disk) if new_signing_keys else 0
    except OSError as error:
        raise Refused(f"{error.filename or directory}: {error.strerror}") from error
    for name, count in moved.items():
        if count:
            click.echo(f"{name}: {count} sealed anew")
    if made:
        click.echo(f"{KEYS_THAT_SIGN}: {made} made; each worker signs with its own after a restart")


async def _told(settings: Settings, database: Database, keys: MasterKey) -> bool:
    """In words, what depends on which key; and whether all depends on the present one."""
    hanging = await all_hanging(settings, database)
    late = await _beginning_otherwise(database, keys)
    own = told(hanging.get(keys.key_id, Counter()))
    click.echo(f"master key {keys.key_id} (secrets.master_key): {own}")
    places = [key for key, _ in named_master_keys(settings)][1:]
    is_done = not late
    for other, place in zip(keys.others, places, strict=True):
        if other.key_id == keys.key_id:
            continue
        click.echo(
            f"master key {other.key_id} ({place}): {told(hanging.get(other.key_id, Counter()))}"
        )
        is_done = is_done and not hanging.get(other.key_id)
    if late:
        click.echo(f"not done: began with another master key, and seal by it: {', '.join(late)}")
        click.echo("restart these workers and run this again")
    elif is_done and places:
        click.echo(
            "done here: once the admin listener was restarted too, and this was said on each"
            " machine with an audit folder, the other keys may be taken out of the settings"
        )
    elif places:
        click.echo("not done: run this again")
    return is_done


async def _beginning_otherwise(database: Database, keys: MasterKey) -> list[str]:
    """Running workers that encrypt with another key than the present one."""
    table = WorkerTable(database)
    alive = set(await table.alive(SystemClock().utc_us()))
    reports = [each for each in await table.all() if each.worker in alive]
    return [each.worker for each in reports if each.master_key_id != keys.key_id]


@click.command("keys")
@config_option
@asynchronous
async def list_keys(config_file: Path) -> None:
    """Print each master key and each pepper, and how much hangs on it, as JSON lines."""
    settings = load_settings(config_file)
    async with opened_database(settings, pooled=False) as database:
        for each in await keys_in_use(settings, database, SystemClock()):
            is_master = each.key == "master_key"
            line = {
                "key": each.key,
                **({"key_id": each.name} if is_master else {"version": int(each.name)}),
                "setting": each.setting,
                "total": each.total,
                "hanging": dict(each.hanging),
            }
            click.echo(json.dumps(line))

"""Verifies an evidence pack or a proof offline: this one file, Python 3.11 or newer, nothing else.

    python3 verify.py PACK [--key VKEY]           a folder or a .zip made by `gatewright audit pack`
    python3 verify.py --proof FILE [--key VKEY]   a proof, or the certificate of an erasure

It is for readers who trust nobody: RFC 6962 (Merkle trees), RFC 8032 (Ed25519) and the C2SP signed
note are done here from the text of the standards, and nothing of the gateway is imported. Give the
log's keys (each worker has one) with --key as you know them from elsewhere; without them, the
file's own are used and the output says so. Exit status: 0 it holds, 1 it does not.
"""

import base64
import hashlib
import json
import sys
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any


FORMAT = "gatewright-evidence/1"
ED25519 = b"\x01"
EMPTY_ROOT = hashlib.sha256(b"").digest()
_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT_OF_MINUS_1 = pow(2, (_P - 1) // 4, _P)
_FILES = ("records.jsonl", "leaves.bin", "checkpoints.jsonl", "keys.txt", "verify.py", "README.txt")
_MANIFEST = {"origin": str, "organisation": str, "first_sequence": int, "last_sequence": int}
_MANIFEST |= {"keys": list, "outside": list, "files": dict}
_MAKERS_WORD = ("format", "created_us", "recipient", "checkpoints_left_out")
_OTHERWISE = "the zip file is not as packs are written; unpack it, and check the folder"
_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LINE_BYTES_MAX = 1 << 20
_MANIFEST_BYTES_MAX = 1 << 24
_HASH_BYTES = 32
_KEY_BYTES = 33
_SIGNATURE_BYTES = 64
_NOTE_PARTS = 3

Hashes = list[bytes]
Point = tuple[int, int, int, int]
Key = tuple[str, bytes, bytes]  # name, short hash and public key
Checkpoint = tuple[str, int, bytes, int]  # origin, size, root, microseconds UTC


class Wrong(Exception):
    """What does not hold, in words."""


_FAULTS: tuple[type[Exception], ...] = (Wrong, ValueError, LookupError, TypeError, OSError)
_FAULTS += (AttributeError, ArithmeticError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error)


def leaf_hash(data: bytes) -> bytes:
    """RFC 6962 section 2.1: the hash of one leaf."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """RFC 6962 section 2.1: the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def split_point(size: int) -> int:
    """The largest power of two below `size` (at least 2)."""
    return 1 << ((size - 1).bit_length() - 1)


def root_of(hashes: Iterable[bytes]) -> bytes:
    """The Merkle tree hash over leaf hashes, or over roots of equally large full trees."""
    level = list(hashes) or [EMPTY_ROOT]
    while len(level) > 1:
        pairs = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) & ~1 :]
    return level[0]


def root_from_path(leaf: bytes, index: int, size: int, path: Iterable[bytes]) -> bytes:
    """RFC 9162 section 2.1.3.2: the root that an inclusion proof leads to; Wrong if it cannot."""
    if not 0 <= index < size:
        raise Wrong("the proof names a leaf outside its tree")
    return _climb(index, size - 1, leaf, path)[1]


def _climb(node: int, last: int, begin: bytes, path: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Up a tree whose last leaf is `last`: the root of what ends with `node`, and the whole one."""
    first = second = begin
    for sibling in path:
        if last == 0:
            raise Wrong("the proof is too long")
        if node & 1 or node == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        node, last = node >> 1, last >> 1
    if last:
        raise Wrong("the proof is too short")
    return first, second


def check_consistency(old: int, new: int, old_root: bytes, new_root: bytes, proof: Hashes) -> None:
    """RFC 9162 section 2.1.4.2: the tree of `new` leaves begins with the one of `old`, or Wrong."""
    path = list(proof)
    if not 0 <= old <= new:
        raise Wrong("a checkpoint is smaller than the one before it")
    if old in (0, new):
        if path or (old and old_root != new_root):
            raise Wrong("two checkpoints of one size differ")
        return
    path = [old_root] * (old & (old - 1) == 0) + path
    if not path:
        raise Wrong("the consistency proof is empty")
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    if _climb(node, last, path[0], path[1:]) != (old_root, new_root):
        raise Wrong("the log was rewritten: two checkpoints contradict each other")


def _add(one: Point, two: Point) -> Point:
    a, b = (one[1] - one[0]) * (two[1] - two[0]), (one[1] + one[0]) * (two[1] + two[0])
    c, d = 2 * one[3] * two[3] * _D, 2 * one[2] * two[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _times(number: int, point: Point) -> Point:
    result: Point = (0, 1, 1, 0)
    while number:
        result = _add(result, point) if number & 1 else result
        point, number = _add(point, point), number >> 1
    return result


def _point(data: bytes) -> Point | None:
    """A point from its 32 bytes, or None."""
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    x = x * (_ROOT_OF_MINUS_1 if (x * x - square) % _P else 1) % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    x = x if x & 1 == sign else _P - x
    return (x, y, 1, x * y % _P)


_BASE = _point((4 * pow(5, _P - 2, _P) % _P).to_bytes(32, "little"))


def ed25519_holds(public: bytes, signature: bytes, message: bytes) -> bool:
    """RFC 8032 section 5.1.7."""
    if len(public) != _HASH_BYTES or len(signature) != _SIGNATURE_BYTES:
        return False
    key, commitment = _point(public), _point(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or _BASE is None or scalar >= _L:
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    challenge = int.from_bytes(digest, "little") % _L
    one, two = _times(scalar, _BASE), _add(commitment, _times(challenge, key))
    return not any((one[at] * two[2] - two[at] * one[2]) % _P for at in (0, 1))


def parse_key(text: str) -> Key:
    """`name+hash+base64` of a verifier key: its name, its four bytes of hash, its public key."""
    name, _, rest = text.strip().partition("+")
    stated, _, encoded = rest.partition("+")
    raw = _decoded(encoded)
    if len(raw) != _KEY_BYTES or raw[:1] != ED25519:
        raise Wrong("a key is not an Ed25519 key")
    short = hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4]
    if short.hex() != stated:
        raise Wrong("a key's hash does not fit")
    return name, short, raw[1:]


def open_checkpoint(note: str, keys: Iterable[Key], holds: Any = ed25519_holds) -> Checkpoint:
    """Origin, size, root and time in microseconds of a checkpoint that one of the keys signed."""
    text, separator, lines = note.rpartition("\n\n")
    if not separator:
        raise Wrong("a checkpoint is not a signed note")
    for line in lines.splitlines():
        parts = line.split(" ")
        if len(parts) != _NOTE_PARTS or parts[0] != "\u2014":
            raise Wrong("a signature line cannot be read")
        raw = _decoded(parts[2])
        for name, short, public in keys:
            known = name == parts[1] and short == raw[:4]
            if known and holds(public, raw[4:], f"{text}\n".encode()):
                return _read_checkpoint(text)
    raise Wrong("a checkpoint was not signed by the log's key: each worker has one, give all")


def _read_checkpoint(text: str) -> Checkpoint:
    lines = text.split("\n")
    try:
        times = [line[8:] for line in lines[3:] if line.startswith("utc_us: ")]
        return lines[0], int(lines[1]), _decoded(lines[2]), int(times[0]) if times else 0
    except (ValueError, IndexError):
        raise Wrong("a checkpoint cannot be read") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Wrong("what should be base64 is not") from None


class Pack:
    """A folder or a zip file."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path) if path.is_file() else None
        self._path = path

    def open(self, name: str) -> Any:
        """One file of it, for reading; Wrong when it is not there."""
        try:
            return self._zip.open(name) if self._zip else (self._path / name).open("rb")
        except (KeyError, OSError):
            raise Wrong(f"{name}: missing") from None

    def close(self) -> None:
        if self._zip:
            self._zip.close()

    def names(self) -> list[str]:
        """All files but the manifest; Wrong where other programs may see what this one does not."""
        paths = [] if self._zip else list(self._path.rglob("*"))
        if any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in paths):
            raise Wrong("the pack holds what is neither a file nor a folder")
        found = [path.relative_to(self._path).as_posix() for path in paths if path.is_file()]
        found += _plain_names(self._zip) if self._zip else ()
        if len(set(found)) < len(found):
            raise Wrong("two files of the pack have one name")
        return sorted({*found} - {"manifest.json"})


def _plain_names(archive: Any) -> list[str]:
    """Wrong where bytes of a zip file are in none of its files, or hashes seem to be compressed."""
    file, end = archive.fp, 0
    for info in sorted(archive.infolist(), key=lambda each: each.header_offset):
        is_bomb = info.filename == "leaves.bin" and info.file_size > 2 * info.compress_size
        if info.header_offset != end or info.compress_type not in _PLAIN or is_bomb:
            raise Wrong(_OTHERWISE)
        file.seek(end + 26)
        end += 30 + int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
        end += info.compress_size
    file.seek(-22, 2)
    if end != archive.start_dir or file.read(4) != b"PK\x05\x06":
        raise Wrong(_OTHERWISE)
    return sorted(info.filename for info in archive.infolist())


def check_pack(path: Path, trusted: list[str]) -> dict[str, object]:
    """Check everything in a pack; a dict that says what was found, or Wrong."""
    with closing(Pack(path)) as pack:
        names = pack.names()
        manifest = _manifest(pack)
        keys = [parse_key(text) for text in trusted or manifest["keys"]]
        first, last = manifest["first_sequence"], manifest["last_sequence"]
        with pack.open("leaves.bin") as file:
            raw = file.read()
        if len(raw) != 32 * (last - first + 1):
            raise Wrong("leaves.bin does not hold one hash for each record")
        # Asked before the records: of two that differ it is to be said which one was changed.
        digest = hashlib.sha256(raw).hexdigest()
        if manifest["files"].get("leaves.bin", digest) != digest:
            raise Wrong("leaves.bin: not the file that the manifest names")
        leaves = [raw[at : at + 32] for at in range(0, len(raw), 32)]
        again = _check_records(pack, leaves, first, {*manifest.get("ended_again", [])})
        _check_files(pack, manifest["files"], names)
        _check_keys(pack, manifest["files"], manifest["keys"])
        checkpoints = _check_checkpoints(pack, manifest["origin"], keys)
        (*_, since_us), (size, root, until_us) = checkpoints[0], checkpoints[-1]
        if first < 1 or size < last:
            raise Wrong("no checkpoint covers the records of the pack")
        outside = [bytes.fromhex(text) for text in manifest["outside"]]
        if _range_root(0, size, first - 1, last, leaves, outside) != root or outside:
            raise Wrong(f"the records {first} to {last} do not give the signed root")
    return {
        "origin": manifest["origin"],
        "records": last - first + 1,
        "first_sequence": first,
        "last_sequence": last,
        "tree_size": size,
        "checkpoints": len(checkpoints),
        "signed_from_us": since_us,
        "signed_until_us": until_us,
        "ended_again": again,
    }


def _manifest(pack: Pack) -> dict[str, Any]:
    """What nobody signed: each field is checked against what was, or is its maker's word."""
    with pack.open("manifest.json") as file:
        raw = file.read(_MANIFEST_BYTES_MAX)
    try:
        manifest = json.loads(raw, object_pairs_hook=_each_once)
    except ValueError as error:
        raise Wrong(f"manifest.json: cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise Wrong("manifest.json: no evidence pack of a version that this file knows")
    for name, kind in _MANIFEST.items():
        if type(manifest.get(name)) is not kind:
            raise Wrong(f"manifest.json: {name} is missing, or not of its kind")
    if odd := sorted({*manifest} - {*_MANIFEST, *_MAKERS_WORD, "ended_again"}):
        raise Wrong(f"manifest.json: holds what this file does not know: {ascii(odd[:5])[1:-1]}")
    if not manifest["origin"].endswith("/" + manifest["organisation"]):
        raise Wrong("manifest.json: names another organisation than the log's")
    return manifest


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that stands twice, other programs may take the other one."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _check_keys(pack: Pack, files: dict[str, str], stated: list[str]) -> None:
    if "keys.txt" in files:
        with pack.open("keys.txt") as file:
            if file.read(_MANIFEST_BYTES_MAX).decode().split() != stated:
                raise Wrong("manifest.json: names other keys than keys.txt")


def _check_records(pack: Pack, leaves: list[bytes], first: int, stated: set[int]) -> list[int]:
    """Outcomes that do not count: a request's first does; it is `stated` where it lies before."""
    sequence, ended, again = first - 1, set[str](), list[int]()
    with pack.open("records.jsonl") as file:
        for sequence, line in enumerate(iter(lambda: file.readline(_LINE_BYTES_MAX), b""), first):
            leaf = leaves[sequence - first] if sequence < first + len(leaves) else b""
            if not line.endswith(b"\n") or leaf_hash(line[:-1]) != leaf:
                raise Wrong(
                    f"records.jsonl: record {sequence}: changed, moved, inserted or removed"
                )
            record = json.loads(line)["record"]
            if record["stage"] == "outcome":
                if sequence in stated or record["request_id"] in ended:
                    again.append(sequence)
                ended.add(record["request_id"])
    if sequence < first + len(leaves) - 1:
        raise Wrong(f"records.jsonl: record {sequence + 1}: missing")
    if not stated <= {*again}:
        raise Wrong("manifest.json: names second outcomes that are none")
    return again


def _check_files(pack: Pack, files: dict[str, str], names: list[str]) -> None:
    odd = {
        "the pack lacks files that its manifest names": {*files} - {*names},
        "the pack holds other files than its manifest names": {*names} - {*files},
    }
    if said := [f"{word}: {ascii(sorted(each)[:5])[1:-1]}" for word, each in odd.items() if each]:
        raise Wrong("; ".join(said))
    for name, expected in files.items():
        with pack.open(name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected:
            raise Wrong(f"{name}: not the file that the manifest names")
        if name not in (*_FILES, f"policies/{digest}.json"):
            raise Wrong(f"{name}: no file of a pack, or not the policy of this digest")


def _check_checkpoints(pack: Pack, origin: str, keys: list[Key]) -> list[tuple[int, bytes, int]]:
    """Size, root and time of each; every one is signed and extends the one before."""
    checked: list[tuple[int, bytes, int]] = []
    with pack.open("checkpoints.jsonl") as file:
        for line in iter(lambda: file.readline(_LINE_BYTES_MAX), b""):
            entry = json.loads(line)
            stated, size, root, utc_us = open_checkpoint(entry["note"], keys)
            if stated != origin:
                raise Wrong("a checkpoint belongs to another log")
            if checked:
                old_size, old_root, old_us = checked[-1]
                path = [bytes.fromhex(text) for text in entry["consistency"]]
                check_consistency(old_size, size, old_root, root, path)
                if utc_us < old_us:
                    raise Wrong("a checkpoint is older than the one before it")
            checked.append((size, root, utc_us))
    if not checked:
        raise Wrong("the pack holds no checkpoint")
    return checked


def _range_root(low: int, high: int, begin: int, end: int, leaves: Hashes, rest: Hashes) -> bytes:
    """The root of leaves low..high, of which `leaves` holds begin..end; takes the rest in order."""
    if high <= begin or low >= end:
        if not rest:
            raise Wrong("hashes of the rest of the log are missing")
        return rest.pop(0)
    if begin <= low and high <= end:
        return root_of(leaves[low - begin : high - begin])
    middle = low + split_point(high - low)
    left = _range_root(low, middle, begin, end, leaves, rest)
    return node_hash(left, _range_root(middle, high, begin, end, leaves, rest))


def check_proof(proof: dict[str, Any], trusted: list[str]) -> dict[str, object]:
    """Check one inclusion proof; a dict that says what it proves, or Wrong."""
    keys = [parse_key(text) for text in trusted or proof["keys"]]
    origin, size, root, utc_us = open_checkpoint(proof["checkpoint"], keys)
    leaf = leaf_hash(proof["record"].encode())
    path = [bytes.fromhex(text) for text in proof["path"]]
    if root_from_path(leaf, proof["sequence"] - 1, size, path) != root:
        raise Wrong(f"record {proof['sequence']} is not in the signed log")
    return {
        "origin": origin,
        "sequence": proof["sequence"],
        "leaf_hash": leaf.hex(),
        "tree_size": size,
        "signed_us": utc_us,
    }


def check_certificate(said: dict[str, Any], trusted: list[str]) -> dict[str, object]:
    """Check an erasure's certificate: of each proof, that its content's key is said to be gone."""
    for proof in said["proofs"]:
        origin, line = check_proof(proof, trusted)["origin"], json.loads(proof["record"])
        is_of_case = str(origin).endswith("/" + said["organisation"])
        is_of_case &= said["subject"] in ("", line["record"].get("subject"))
        if not is_of_case or line["content"]["key"] not in said["keys_destroyed"]:
            raise Wrong(f"record {proof['sequence']} is of no key that the case destroyed")
    proved = len({proof["sequence"] for proof in said["proofs"]})
    if not proved:
        raise Wrong("the certificate carries no proof")
    found = {name: said[name] for name in ("case", "organisation", "subject", "erased_us")}
    return found | {"records": said["records"], "proved": proved}


def main() -> int:
    import argparse  # noqa: PLC0415 - the gateway, which imports this file, needs none

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("pack", nargs="?", type=Path)
    either.add_argument("--proof", type=Path)
    parser.add_argument("--key", action="append", default=[], help="one, or all between blanks")
    options = parser.parse_args()
    # Nothing is said of evidence of which nothing was looked at.
    fails = "NOT CHECKED"
    try:
        keys = [key for each in options.key for key in each.split() or [each]]
        for key in keys:
            parse_key(key)
        (options.proof or options.pack).stat()
        fails = "DOES NOT HOLD"
        proof = json.loads(options.proof.read_text("utf-8")) if options.proof else {}
        check = check_certificate if "proofs" in proof else check_proof
        found = check(proof, keys) if options.proof else check_pack(options.pack, keys)
    except _FAULTS as error:
        # Names of a pack are escaped: a terminal would obey what is in them, or not know it.
        sys.stdout.write(f"{fails}: {ascii(str(error) or type(error).__name__)[1:-1]}\n")
        return 1
    sys.stdout.writelines(f"{name}: {ascii(str(value))[1:-1]}\n" for name, value in found.items())
    doubt = ", if the key in it is the log's own: give it with --key"
    sys.stdout.write(f"it holds{'' if keys else doubt}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

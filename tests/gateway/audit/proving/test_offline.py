"""The offline verifier against small packs made by hand, and against the texts of the standards."""

import base64
import hashlib
import json
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gateway.audit.proving import offline
from gateway.audit.proving.checkpoints import Checkpoint, Signer
from gateway.audit.proving.merkle import consistency_path, inclusion_path, outside_hashes
from gateway.audit.proving.offline import (
    Wrong,
    check_certificate,
    check_pack,
    check_proof,
    ed25519_holds,
    open_checkpoint,
    parse_key,
)
from tests.gateway.audit.proving.test_merkle import naive_root


SIZE = 6
ORGANISATION = "acme"
ORIGIN = f"log/{ORGANISATION}"
SIGNER = Signer("log/w0", bytes(range(32)))
KEYS = [SIGNER.verifier_key]
RECORDS = [
    json.dumps(
        {"record": {"stage": stage, "request_id": f"r{min(number // 2, 1)}", "n": number}}
    ).encode()
    for number, stage in enumerate(["intent", "outcome", "intent", "outcome", "outcome", "admin"])
]
LEAVES = [hashlib.sha256(b"\x00" + line).digest() for line in RECORDS]
ORDER = 2**252 + 27742317777372353535851937790883648493
PRIME = 2**255 - 19


def tile(_: tuple[int, int]) -> list[bytes]:
    return LEAVES


def signed(size: int, origin: str = ORIGIN, utc_us: int | None = None) -> str:
    root = naive_root(LEAVES[:size])
    return SIGNER.sign(Checkpoint(origin, size, root, size if utc_us is None else utc_us))


class Made:
    """A pack of records `first` to `last`, numbered from 1, of a log with these checkpoints."""

    def __init__(self, folder: Path, first: int, last: int, sizes: tuple[int, ...]) -> None:
        self.folder = folder / "pack"
        (self.folder / "policies").mkdir(parents=True)
        self.lines: list[dict[str, Any]] = [
            {
                "note": signed(size),
                "consistency": [
                    each.hex() for each in (consistency_path(old, size, tile) if old else [])
                ],
            }
            for old, size in zip((0, *sizes), sizes, strict=False)
        ]
        policy = b"{}"
        self.files = {
            "leaves.bin": b"".join(LEAVES[first - 1 : last]),
            "records.jsonl": b"".join(line + b"\n" for line in RECORDS[first - 1 : last]),
            f"policies/{hashlib.sha256(policy).hexdigest()}.json": policy,
        }
        self.manifest: dict[str, Any] = {
            "format": "gatewright-evidence/1",
            "origin": ORIGIN,
            "organisation": ORGANISATION,
            "first_sequence": first,
            "last_sequence": last,
            "keys": KEYS,
            "outside": [each.hex() for each in outside_hashes(first - 1, last, sizes[-1], tile)],
        }

    def checked(self, keys: list[str] | None = None) -> dict[str, object]:
        lines = "".join(f"{json.dumps(line)}\n" for line in self.lines)
        files = self.files | {"checkpoints.jsonl": lines.encode()}
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        manifest = json.dumps({"files": digests, **self.manifest})
        (self.folder / "manifest.json").write_text(manifest)
        return check_pack(self.folder, KEYS if keys is None else keys)


@pytest.mark.parametrize("sizes", [(6,), (1, 2, 3, 4, 5, 6), (3, 6), (4, 4, 6)])
def test_every_part_of_a_log_holds_and_its_neighbours_do_not(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    for first in range(1, SIZE + 1):
        for last in range(first, SIZE + 1):
            made = Made(tmp_path / f"{first}-{last}", first, last, sizes)
            assert made.checked() == {
                "origin": ORIGIN,
                "records": last - first + 1,
                "first_sequence": first,
                "last_sequence": last,
                "tree_size": SIZE,
                "checkpoints": len(sizes),
                "signed_from_us": sizes[0],
                "signed_until_us": SIZE,
                "ended_again": [5] if first <= 4 and last >= 5 else [],
            }
            for by_first, by_last in ((1, 1), (-1, -1), (1, 0), (0, 1), (0, -1), (-1, 0)):
                numbers = {"first_sequence": first + by_first, "last_sequence": last + by_last}
                made.manifest |= numbers
                with pytest.raises(Wrong):
                    made.checked()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda made: made.manifest.update(format="gatewright-evidence/2"), "no evidence pack"),
        (
            lambda made: made.manifest.update(origin="log/other", organisation="other"),
            "belongs to another log",
        ),
        (lambda made: made.manifest["outside"].append("00" * 32), "do not give the signed root"),
        (lambda made: made.manifest["outside"].pop(), "hashes of the rest of the log are missing"),
        (lambda made: made.manifest["outside"].reverse(), "do not give the signed root"),
        (lambda made: made.lines.clear(), "holds no checkpoint"),
        (lambda made: made.lines.pop(), "hashes|signed root|no checkpoint covers"),
        (lambda made: made.lines[1].update(consistency=[]), "consistency proof is empty"),
        (lambda made: made.lines[1]["consistency"].pop(), "too short|contradict"),
        (lambda made: made.lines[1]["consistency"].append("00" * 32), "too long|contradict"),
        (lambda made: made.lines.reverse(), "smaller than the one before"),
        (lambda made: made.lines[1].update(note=signed(6, utc_us=2)), "older than the one before"),
        (lambda made: made.lines[1].update(note=signed(6, "log/b")), "belongs to another log"),
        (lambda made: made.files.pop("leaves.bin"), "leaves.bin: missing"),
        (lambda made: made.files.update({"leaves.bin": made.files["leaves.bin"][1:]}), "one hash"),
        (lambda made: made.files.update({"records.jsonl": b""}), "record 2: missing"),
        (
            lambda made: made.files.update({"records.jsonl": made.files["records.jsonl"][:-1]}),
            "record 4: changed",
        ),
        (
            lambda made: made.files.update(
                {"records.jsonl": made.files["records.jsonl"][:-1] + b" "}
            ),
            "record 4: changed",
        ),
        (
            lambda made: made.files.update({"records.jsonl": made.files["records.jsonl"] + b"\n"}),
            "record 5: changed",
        ),
        (lambda made: made.files.update({f"policies/{'0' * 64}.json": b"{}"}), "not the policy"),
    ],
)
def test_what_is_changed_in_a_pack_is_said(
    tmp_path: Path, change: Callable[[Made], object], reason: str
) -> None:
    made = Made(tmp_path, 2, 4, (3, 6))
    made.checked()
    for path in (*made.folder.glob("*.*"), *made.folder.glob("policies/*")):
        path.unlink()
    change(made)
    with pytest.raises(Wrong, match=reason):
        made.checked()


def test_a_pack_that_names_no_file_or_one_too_many_or_another_digest_does_not_hold(
    tmp_path: Path,
) -> None:
    made = Made(tmp_path, 1, 6, (6,))
    made.checked()
    names = json.loads((made.folder / "manifest.json").read_text())["files"]
    for files in ({}, names | {"more": "00" * 32}, dict(list(names.items())[1:])):
        made.manifest["files"] = files
        with pytest.raises(Wrong, match=r"files (than|that) its manifest names"):
            made.checked()
    for name in names:
        made.manifest["files"] = names | {name: "00" * 32}
        with pytest.raises(Wrong, match=f"{name}: not the file"):
            made.checked()
    made.manifest["files"] = names
    (made.folder / "policies" / "more.json").write_bytes(b"{}")
    with pytest.raises(Wrong, match="other files"):
        made.checked()


@pytest.mark.parametrize(
    "name",
    ["records.jsonl", "leaves.bin", "checkpoints.jsonl", "keys.txt", "policies", "manifest.json"],
)
def test_of_a_byte_that_was_changed_the_file_is_named(tmp_path: Path, name: str) -> None:
    """A hash that was changed was said of its record, and a broken manifest by no name at all."""
    made = Made(tmp_path, 1, 6, (3, 6))
    made.files["keys.txt"] = "".join(f"{key}\n" for key in KEYS).encode()
    made.checked()
    path = made.folder / name
    (path,) = path.iterdir() if path.is_dir() else (path,)
    whole = path.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
        with pytest.raises(Wrong, match=re.escape(path.name)):
            check_pack(made.folder, KEYS)
    path.write_bytes(whole)
    assert check_pack(made.folder, KEYS)["records"] == 6
    path.unlink()
    with pytest.raises(Wrong, match=f"lacks.*{re.escape(path.name)}|{name}: missing"):
        check_pack(made.folder, KEYS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"organisation": "other"}, "another organisation than the log's"),
        ({"organisation": None}, "organisation is missing, or not of its kind"),
        ({"first_sequence": True}, "first_sequence is missing, or not of its kind"),
        ({"files": []}, "files is missing, or not of its kind"),
        ({"keys": [*KEYS, "another"]}, "other keys than keys.txt"),
        ({"approved_by": "the regulator"}, "holds what this file does not know: 'approved_by'"),
    ],
)
def test_a_manifest_says_nothing_that_is_neither_checked_nor_its_makers_word(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    made = Made(tmp_path, 1, 6, (6,))
    made.files["keys.txt"] = "".join(f"{key}\n" for key in KEYS).encode()
    made.manifest |= {"recipient": "an auditor", "created_us": 1, "checkpoints_left_out": 0}
    assert made.checked()["records"] == 6
    made.manifest |= change
    with pytest.raises(Wrong, match=f"manifest.json: .*{re.escape(reason)}"):
        made.checked()


def test_a_name_that_stands_twice_in_a_manifest_is_refused(tmp_path: Path) -> None:
    """Other programs may show the other one."""
    made = Made(tmp_path, 1, 6, (6,))
    made.checked()
    path = made.folder / "manifest.json"
    path.write_text(path.read_text().replace("{", '{"recipient": "a", "recipient": "b", ', 1))
    with pytest.raises(Wrong, match="a name stands twice"):
        check_pack(made.folder, KEYS)


def test_a_pack_without_records_or_of_a_checkpoint_too_small_is_none(tmp_path: Path) -> None:
    made = Made(tmp_path / "a", 1, 6, (6,))
    made.manifest["first_sequence"] = 0
    made.files["leaves.bin"] += LEAVES[5]
    made.files["records.jsonl"] = b"".join(line + b"\n" for line in (RECORDS[5], *RECORDS))
    made.files["leaves.bin"] = b"".join((LEAVES[5], *LEAVES))
    with pytest.raises(Wrong, match="no checkpoint covers"):
        made.checked()
    small = Made(tmp_path / "b", 1, 6, (3, 5))
    with pytest.raises(Wrong, match="no checkpoint covers"):
        small.checked()


def test_the_packs_own_keys_are_used_only_where_none_is_given(tmp_path: Path) -> None:
    made, other = Made(tmp_path, 1, 6, (6,)), Signer("log/w0", bytes(32))
    assert made.checked([])["records"] == 6
    assert made.checked([other.verifier_key, *KEYS])["records"] == 6
    with pytest.raises(Wrong, match="not signed by the log's key"):
        made.checked([other.verifier_key])
    made.manifest["keys"] = [other.verifier_key]
    assert made.checked()["records"] == 6


def test_the_first_outcome_counts_and_the_manifest_may_only_name_later_ones(tmp_path: Path) -> None:
    made = Made(tmp_path, 4, 6, (6,))
    for stated, again in (([], [5]), ([4], [4, 5]), ([4, 5], [4, 5]), ([5], [5])):
        made.manifest["ended_again"] = stated
        assert made.checked()["ended_again"] == again
    for wrong in ([6], [3], [0], [4, 6]):
        made.manifest["ended_again"] = wrong
        with pytest.raises(Wrong, match="second outcomes that are none"):
            made.checked()


def test_every_proof_holds_at_its_own_place_alone() -> None:
    for size in range(1, SIZE + 1):
        for index in range(size):
            proof: dict[str, Any] = {
                "keys": KEYS,
                "checkpoint": signed(size, utc_us=9),
                "record": RECORDS[index].decode(),
                "sequence": index + 1,
                "path": [each.hex() for each in inclusion_path(index, size, tile)],
            }
            assert check_proof(proof, []) == {
                "origin": ORIGIN,
                "sequence": index + 1,
                "leaf_hash": LEAVES[index].hex(),
                "tree_size": size,
                "signed_us": 9,
            }
            changes: list[dict[str, Any]] = [
                *({"sequence": other + 1} for other in range(-1, size + 1) if other != index),
                {"record": RECORDS[index].decode() + " "},
                {"path": [*proof["path"], "00" * 32]},
                {"path": proof["path"][:-1]} if size > 1 else {"sequence": 0},
                {"checkpoint": signed(size).replace("log/acme", "log/b")},
            ]
            for change in changes:
                with pytest.raises(Wrong):
                    check_proof(proof | change, KEYS)
            with pytest.raises(Wrong, match="not signed"):
                check_proof(proof, [Signer("log/w0", bytes(32)).verifier_key])


def verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["verify.py", *arguments])
    status = offline.main()
    return status, capsys.readouterr().out


def test_what_is_said_of_a_proof_or_a_pack_and_whose_key_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made, path = Made(tmp_path, 1, 6, (6,)), tmp_path / "proof.json"
    made.checked()
    inclusion = [each.hex() for each in inclusion_path(0, 6, tile)]
    proof = {"keys": KEYS, "checkpoint": signed(6), "path": inclusion}
    path.write_text(json.dumps(proof | {"record": RECORDS[0].decode(), "sequence": 1}))
    packed = tmp_path / "pack.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for each in made.folder.rglob("*"):
            if each.is_file():
                archive.write(each, each.relative_to(made.folder))
    doubt = "it holds, if the key in it is the log's own: give it with --key\n"
    for where in (["--proof", str(path)], [str(made.folder)], [str(packed)]):
        status, said = verdict(monkeypatch, capsys, *where)
        assert (status, said.startswith("origin: log/acme\n"), said.endswith(doubt)) == (
            0,
            True,
            True,
        )
        status, said = verdict(monkeypatch, capsys, *where, "--key", KEYS[0])
        assert (status, said.endswith("\nit holds\n")) == (0, True)
        other = Signer("log/w0", bytes(32)).verifier_key
        status, said = verdict(monkeypatch, capsys, *where, "--key", other)
        assert status == 1
        assert said.startswith("DOES NOT HOLD: a checkpoint was not signed by the log's key: ")
        for several in (["--key", other, "--key", KEYS[0]], ["--key", f"{other}\n{KEYS[0]}\n"]):
            status, said = verdict(monkeypatch, capsys, *where, *several)
            assert (status, said.endswith("\nit holds\n")) == (0, True)
        for mistyped in ("\n", "KEYS", "log/w0+KEYS", KEYS[0][:-1], f"{KEYS[0]} {KEYS[0][1:]}"):
            status, said = verdict(monkeypatch, capsys, *where, "--key", mistyped)
            assert (status, said.startswith("NOT CHECKED: ")) == (1, True), mistyped
    for none in (["--proof", str(tmp_path / "none")], [str(tmp_path / "none")]):
        status, said = verdict(monkeypatch, capsys, *none)
        assert (status, said.startswith("NOT CHECKED: ")) == (1, True)
    for unclear in ([], [str(packed), "--proof", str(path)]):
        with pytest.raises(SystemExit, match="2"):
            verdict(monkeypatch, capsys, *unclear)


RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701"
            "cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d"
            "0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
    ),
]


@pytest.mark.parametrize(("public", "message", "signature"), RFC_8032)
def test_the_signatures_of_the_rfc_hold(public: str, message: str, signature: str) -> None:
    """RFC 8032 §7.1, the first two."""
    given = [bytes.fromhex(each) for each in (public, signature, message)]
    assert ed25519_holds(*given)


def library_holds(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def test_signatures_hold_and_fail_as_the_librarys_do() -> None:
    draw = random.Random(11)
    for number in range(12):
        key, message = Ed25519PrivateKey.from_private_bytes(draw.randbytes(32)), draw.randbytes(9)
        public, whole = key.public_key().public_bytes_raw(), key.sign(message)
        assert ed25519_holds(public, whole, message)
        for bits in (public, whole):
            at = draw.randrange(len(bits) * 8)
            changed = bytearray(bits)
            changed[at // 8] ^= 1 << at % 8
            given = (bytes(changed), whole) if bits is public else (public, bytes(changed))
            assert ed25519_holds(*given, message) == library_holds(*given, message) is False
        scalar = int.from_bytes(whole[32:], "little") + ORDER
        assert not ed25519_holds(public, whole[:32] + scalar.to_bytes(32, "little"), message)
        for short in ((public[:-1], whole), (public + b"\0", whole), (public, whole + b"\0")):
            assert not ed25519_holds(*short, message), number


NEUTRAL = (1).to_bytes(32, "little")


@pytest.mark.parametrize(
    ("encoded", "is_point"),
    [
        (NEUTRAL, True),
        ((PRIME - 1).to_bytes(32, "little"), True),
        # RFC 8032 §5.1.3: neither another form of a number, nor a minus zero, nor no square root.
        ((1 | 1 << 255).to_bytes(32, "little"), False),
        ((PRIME - 1 | 1 << 255).to_bytes(32, "little"), False),
        (PRIME.to_bytes(32, "little"), False),
        ((PRIME + 1).to_bytes(32, "little"), False),
        ((2).to_bytes(32, "little"), False),
    ],
)
def test_a_point_has_one_form(encoded: bytes, *, is_point: bool) -> None:
    """With the neutral element for a key and as a commitment, 0 is a scalar that holds."""
    signature = encoded + bytes(32)
    for public in (NEUTRAL, encoded):
        holds = is_point and encoded == NEUTRAL
        assert ed25519_holds(public, signature, b"anything") == holds
    assert (offline._point(encoded) is not None) == is_point


def test_a_scalar_is_below_the_order_of_the_group() -> None:
    for scalar, holds in ((0, True), (ORDER, False), (2 * ORDER, False), (1, False)):
        signature = NEUTRAL + scalar.to_bytes(32, "little")
        assert ed25519_holds(NEUTRAL, signature, b"anything") == holds


def test_a_note_may_have_several_signatures_and_lines_that_we_do_not_know() -> None:
    other = Signer("log/w1", bytes(32))
    checkpoint = Checkpoint(ORIGIN, 5, bytes(32), 7)
    both = other.sign(checkpoint) + SIGNER.sign(checkpoint).partition("\n\n")[2]
    keys = [parse_key(each.verifier_key) for each in (SIGNER, other)]
    for some in (keys, keys[:1], keys[1:]):
        assert open_checkpoint(both, some) == (ORIGIN, 5, bytes(32), 7)
    root = base64.b64encode(bytes(32)).decode()
    for more, utc_us in (("", 0), ("more: of it\n", 0), ("more\nutc_us: 8\nutc_us: 9\n", 8)):
        text = f"{ORIGIN}\n5\n{root}\n{more}"
        assert open_checkpoint(_noted(text), keys) == (ORIGIN, 5, bytes(32), utc_us)
    for text in ("", f"{ORIGIN}\n", f"{ORIGIN}\nfive\n{root}\n", f"{ORIGIN}\n5\n#\n"):
        with pytest.raises(Wrong):
            open_checkpoint(_noted(text), keys)
    with pytest.raises(Wrong, match="signature line cannot be read"):
        open_checkpoint(SIGNER.sign(checkpoint) + "\u2014 log/w0\n", keys[1:])
    with pytest.raises(Wrong, match="signature line cannot be read"):
        open_checkpoint(SIGNER.sign(checkpoint) + "\u2014 log/w0 a b\n", keys[1:])
    with pytest.raises(Wrong, match="signature line cannot be read"):
        open_checkpoint(SIGNER.sign(checkpoint).replace("\u2014", "-"), keys)


def _noted(text: str, name: str = SIGNER.name, short: bytes = b"") -> str:
    raw = SIGNER._key.sign(text.encode())
    short = short or parse_key(SIGNER.verifier_key)[1]
    return f"{text}\n\u2014 {name} {base64.b64encode(short + raw).decode()}\n"


def test_a_signature_counts_under_the_name_and_the_hash_of_its_key_alone() -> None:
    text = Checkpoint(ORIGIN, 5, bytes(32), 7).text()
    keys = [parse_key(SIGNER.verifier_key)]
    assert open_checkpoint(_noted(text), keys) == (ORIGIN, 5, bytes(32), 7)
    for note in (_noted(text, name="log/w9"), _noted(text, short=bytes(4))):
        with pytest.raises(Wrong, match="not signed by the log's key"):
            open_checkpoint(note, keys)


def test_a_key_is_read_as_it_is_written_and_no_other() -> None:
    name, short, public = parse_key(f" {SIGNER.verifier_key}\n")
    assert (name, public) == ("log/w0", SIGNER.public)
    raw = b"\x01" + SIGNER.public
    assert short == hashlib.sha256(b"log/w0\n" + raw).digest()[:4]
    encoded = base64.b64encode(b"\x02" + SIGNER.public).decode()
    digest = hashlib.sha256(b"log/w0\n\x02" + SIGNER.public).hexdigest()[:8]
    with pytest.raises(Wrong, match="not an Ed25519 key"):
        parse_key(f"log/w0+{digest}+{encoded}")
    for length in (31, 33):
        wrong = b"\x01" + bytes(length)
        digest = hashlib.sha256(b"log/w0\n" + wrong).hexdigest()[:8]
        with pytest.raises(Wrong, match="not an Ed25519 key"):
            parse_key(f"log/w0+{digest}+{base64.b64encode(wrong).decode()}")


def certificate() -> dict[str, Any]:
    """Of one end user's record 1 and 2 of a log of four, under a key that was destroyed."""
    kept = {"organisation": "acme", "subject": "5b0e"}
    lines = [json.dumps({"record": kept, "content": {"key": f"k{at}"}}) for at in (1, 1, 2, 3)]
    leaves = [hashlib.sha256(b"\x00" + line.encode()).digest() for line in lines]
    note = SIGNER.sign(Checkpoint(ORIGIN, 4, naive_root(leaves), 1))
    proofs = []
    for at in (0, 1):
        path = [each.hex() for each in inclusion_path(at, 4, lambda _: leaves)]
        proof = {"sequence": at + 1, "record": lines[at], "path": path}
        proofs += [proof | {"checkpoint": note, "keys": KEYS}]
    said = {"case": "c1", "organisation": "acme", "subject": "5b0e", "erased_us": 7}
    return said | {"keys_destroyed": ["k1"], "records": 2, "proofs": proofs}


def test_a_certificate_proves_records_of_its_case() -> None:
    found = check_certificate(certificate(), KEYS)
    assert (found["records"], found["proved"]) == (2, 2)
    of_all = certificate() | {"subject": ""}
    assert check_certificate(of_all, KEYS)["proved"] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys_destroyed": ["k2"]},
        {"subject": "77aa"},
        {"organisation": "cme"},
        {"organisation": "globex"},
        {"proofs": []},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_certificate_of_another_case_does_not_hold(wrong: dict[str, Any]) -> None:
    with pytest.raises(Wrong):
        check_certificate(certificate() | wrong, KEYS)


def test_a_proof_that_stands_twice_in_a_certificate_counts_once() -> None:
    said = certificate()
    said["proofs"] = [said["proofs"][0]] * 2
    assert check_certificate(said, KEYS)["proved"] == 1

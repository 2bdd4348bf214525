"""What a file lost since a backup, by the list of what was erased."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.audit.disk import Disk
from gateway.store.erasure.erased_kept import NAME, Erased, add, lines_gone, listed


def taken(key: str, *lines: int, stays: bool = False) -> Erased:
    return Erased(1, file="f", key=key, lines=lines, keeps_places=stays)


def marked(key: str, *lines: int) -> Erased:
    return Erased(1, file="f", key=key, lines=lines, marks=("a",))


@pytest.mark.parametrize(
    ("erased", "names", "gone"),
    [
        ([taken("k0", 2), taken("k1", 1), taken("k2", 2)], ("k0",), {1, 2, 4}),
        ([taken("k0", 2), taken("k1", 1), taken("k2", 2)], ("other", "k1"), {1, 3}),
        ([taken("k0", 2), taken("k1", 1), taken("k2", 2)], ("k3",), set[int]()),
        ([taken("k0", 2, stays=True), taken("k1", 1, stays=True)], ("k0",), {1, 2}),
        # A list that an earlier version began: it let lines move up.
        (
            [taken("k0", 1), taken("k1", 1, stays=True), taken("k2", 3, stays=True)],
            ("k0",),
            {1, 2, 4},
        ),
        # One that was broken off before it took its lines out.
        ([taken("k0", 1), taken("k0", 2), taken("k1", 2)], ("k0",), {1, 2, 3}),
        # What could not be named was not taken out.
        ([taken("", 1), taken("k0", 2)], ("",), set[int]()),
        ([taken("", 1), taken("k0", 2)], ("k0", ""), {2}),
        # What has marks is found by these, but under its own key, and moved others that have none.
        ([marked("k0", 1), taken("k1", 2)], ("k0",), {1, 3}),
        ([marked("k0", 2), marked("k0", 1), marked("k1", 3)], ("k0",), {1, 2}),
        ([taken("k0", 1), marked("k1", 2)], ("k0",), {1}),
        ([], ("k0",), set[int]()),
    ],
)
def test_a_content_loses_what_went_under_its_key_or_later(
    erased: Sequence[Erased], names: tuple[str, ...], gone: set[int]
) -> None:
    assert lines_gone(erased, names) == gone


@pytest.mark.parametrize("seed", range(50))
def test_whatever_went_in_whatever_order_is_left_out_again(seed: int) -> None:
    chance = random.Random(seed)
    whole = [*range(1, 13)]
    left, erased, contents = [*whole], list[Erased](), dict[str, list[int]]()
    while left:
        key = f"k{len(erased)}"
        contents[key] = left
        places = set(chance.sample(range(1, len(left) + 1), chance.randint(1, len(left))))
        erased.append(taken(key, *sorted(places)))
        left = [each for at, each in enumerate(left, 1) if at not in places]
    for key, content in contents.items():
        assert lines_gone(erased, (key,)) == {*range(1, len(content) + 1)}
    for key, content in contents.items():
        gone = lines_gone(erased[:-1], (key,))
        last = contents[erased[-1].key]
        if key != erased[-1].key:
            assert [each for at, each in enumerate(content, 1) if at not in gone] == last


def test_a_list_that_cannot_be_read_at_this_moment_is_not_an_empty_one(tmp_path: Path) -> None:
    """A start that took it for empty would serve again what a backup brought back."""
    assert listed(tmp_path) == []
    add(tmp_path, [taken("k0", 2)], Disk())
    assert listed(tmp_path) == [taken("k0", 2)]
    aside = (tmp_path / NAME).rename(tmp_path / "aside")
    (tmp_path / NAME).mkdir()
    with pytest.raises(IsADirectoryError):
        listed(tmp_path)
    (tmp_path / NAME).rmdir()
    aside.rename(tmp_path / NAME)
    assert listed(tmp_path) == [taken("k0", 2)]

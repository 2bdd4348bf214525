"""When an erasure has reached every audit folder, and what is said of those that it has not."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.store.custody.audit_folders import AuditFolder
from gateway.store.erasure.folder_reports import FolderReport
from gateway.store.erasure.outstanding import reach_of


WORKERS = ["w0", "w1", "w2", "w3"]
MARKS = ["a" * 16, "b" * 16, "c" * 16]
NAMES = st.lists(st.sampled_from(WORKERS), unique=True)
FOLDERS = st.dictionaries(st.sampled_from(MARKS), NAMES).map(
    lambda lying: [AuditFolder(mark, tuple(names), "w0", 1) for mark, names in lying.items()]
)


def report(
    mark: str, workers: tuple[str, ...], done_us: int = 1, held_by: str = ""
) -> FolderReport:
    return FolderReport("case", mark, workers, "w0", (), done_us=done_us, held_by=held_by)


@given(NAMES, FOLDERS, st.sets(st.sampled_from(MARKS)), st.sets(st.sampled_from(WORKERS)))
def test_a_case_is_complete_when_each_folder_of_each_awaited_worker_is_done_and_not_before(
    awaited: list[str], folders: list[AuditFolder], done: set[str], retired: set[str]
) -> None:
    reports = [report(each.folder, each.workers) for each in folders if each.folder in done]
    reach = reach_of(awaited, 7, folders, reports, retired)
    for name in awaited:
        theirs = [each for each in folders if name in each.workers]
        is_done = bool(theirs) and all(each.folder in done for each in theirs)
        assert (name in reach.workers_outstanding) != is_done
        alone = all(set(each.workers) & set(awaited) <= retired for each in theirs)
        if not is_done and not (name in retired and alone):
            assert not reach.is_complete
    assert set(reach.workers_outstanding) <= set(awaited), "nobody else is waited for"
    assert all(each.said for each in reach.outstanding)
    more = [*reports, *(report(each.folder, each.workers) for each in folders)]
    assert reach_of(awaited, 7, folders, more, WORKERS).is_complete


def test_what_is_outstanding_says_why() -> None:
    here = AuditFolder(MARKS[0], ("w0",), "w0", 1)
    there = AuditFolder(MARKS[1], ("w1",), "w1", 1)
    done = report(here.folder, here.workers)

    def left(*reports: FolderReport, retired: tuple[str, ...] = ()) -> list[str]:
        reach = reach_of(["w0", "w1", "w2"], 7, [here, there], [done, *reports], retired)
        return [each.said for each in reach.outstanding]

    unheard, unknown = left()
    assert unheard.startswith("The audit folder of worker w1 has not reported.")
    assert unknown.startswith("No audit folder with the keys of worker w2 has reported")
    held = report(there.folder, there.workers, done_us=0, held_by="h1")
    assert left(held)[0] == "Hold h1 forbids it in the audit folder of worker w1."
    assert "has not come to its end" in left(replace(held, held_by=""))[0]
    assert [each.split(" ")[1] for each in left(retired=("w1", "w2"))] == ["name", "name"]
    assert left(replace(held, done_us=1, workers=("w1", "w2"))) == []


def test_a_folder_that_was_first_seen_empty_after_a_case_is_not_asked_about_it() -> None:
    young = AuditFolder(MARKS[0], ("w0",), "w0", 1, since_revision=7)
    assert reach_of(["w0"], 7, [young], []).is_complete
    assert not reach_of(["w0"], 8, [young], []).is_complete
    assert not reach_of(["w0"], 0, [young], []).is_complete, "closed by an older program"

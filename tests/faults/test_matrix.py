"""The table of docs/reliability.md is that of all runs that were ever recorded."""

from faults.cases import CASES
from faults.matrix import KEPT, PAGE, Attempt, add, kept, markdown, upcoming, write


def test_attempts_add_up(tmp_path):
    case, path = CASES[0], tmp_path / "matrix.jsonl"
    assert kept(path) == []
    for seed, survived, seconds in ((1, True, 20.0), (2, False, None), (3, True, 30.0)):
        add(path, Attempt(case.name, seed, survived, seconds, "ab"))
    add(path, Attempt(CASES[1].name, 1, True, None, None))
    assert [attempt.seed for attempt in kept(path)] == [1, 2, 3, 1]
    assert markdown(case, kept(path)).endswith("| 2 of 3 | 25 |")
    assert markdown(CASES[1], kept(path)).endswith("| 1 of 1 | – |")


def test_the_next_case_is_the_first_with_the_fewest_attempts_and_has_a_new_seed():
    known = [Attempt(CASES[0].name, 1, True, None, None), Attempt(CASES[2].name, 7, False, None, None)]
    assert upcoming(CASES[:3], known) == (CASES[1], 1)
    known += [Attempt(CASES[1].name, 1, True, None, None)]
    assert upcoming(CASES[:3], known) == (CASES[0], 2)
    assert upcoming(CASES[2:3], known) == (CASES[2], 8)


def test_the_table_of_the_page_has_every_recorded_run(tmp_path):
    page = tmp_path / "reliability.md"
    page.write_text(PAGE.read_text())
    write(kept(KEPT), page)
    assert page.read_text() == PAGE.read_text()
    assert {attempt.case for attempt in kept(KEPT)} <= {case.name for case in CASES}

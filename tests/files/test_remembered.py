"""Answers are computed once for each text and version of our code, and a cache that fails costs only time."""

import json

import pytest

from disentune.files import remembered as module
from disentune.files.remembered import MOST_KEPT, remembered


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    return tmp_path / "answers"


class Answer:
    def __init__(self, value):
        self.value, self.asked = value, 0

    def __call__(self):
        self.asked += 1
        return self.value


def test_the_same_question_is_answered_once():
    answer = Answer({"mig": 0.1})
    assert [remembered("scores", "this run", answer) for _ in range(3)] == [{"mig": 0.1}] * 3
    assert answer.asked == 1


@pytest.mark.parametrize(("question", "about"), [("others", "this run"), ("scores", "that run")])
def test_another_question_or_text_is_answered_anew(question, about):
    remembered("scores", "this run", Answer(1))
    assert remembered(question, about, Answer(2)) == 2


def test_another_version_of_the_code_is_answered_anew(monkeypatch):
    remembered("scores", "this run", Answer(1))
    monkeypatch.setattr(module, "_code", lambda: "another")
    assert remembered("scores", "this run", Answer(2)) == 2


def test_a_damaged_answer_is_computed_again(cache):
    remembered("scores", "this run", Answer(1))
    (path,) = cache.glob("*")
    path.write_text('{"mig": 0.')
    assert remembered("scores", "this run", Answer(2)) == 2
    assert json.loads(path.read_bytes()) == 2


def test_only_the_newest_answers_to_a_question_are_kept(cache):
    for number in range(MOST_KEPT + 3):
        remembered("scores", str(number), Answer(number))
    assert len([*cache.glob("scores-*")]) == MOST_KEPT


def test_without_a_home_folder_every_answer_is_computed(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module, "cache_folder", homeless)
    answer = Answer(1)
    assert [remembered("scores", "this run", answer) for _ in range(2)] == [1, 1]
    assert answer.asked == 2


def test_a_cache_that_cannot_be_written_costs_only_time(monkeypatch):
    def refused(path, data):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(module, "write_atomically", refused)
    assert remembered("scores", "this run", Answer(1)) == 1

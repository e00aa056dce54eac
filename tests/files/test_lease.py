"""Who holds a run in an object store: one at a time, a dead one not for long, a lost one no more."""

import json
import os
import signal
import threading

import pytest

from disentune.errors import ConfigError
from disentune.files import conditional, lease, storage
from disentune.files.storage import place
from processes import patience_s


@pytest.fixture
def path(object_store):
    return place("s3://bucket/runs/demo/main/driver.lock")


@pytest.fixture
def brief(monkeypatch):
    """A lease that is renewed often and soon stale."""
    monkeypatch.setattr(lease, "RENEW_S", 0.1)
    monkeypatch.setattr(lease, "VALID_S", patience_s(2.0))


def written(path, **changes):
    """A lease as a holder that died would leave it."""
    about = {"session": "old", "pid": 123, "host": "there", "began": 0.0, "beats": 3, "released": False}
    path.write_bytes(json.dumps({**about, **changes}).encode())


def until(condition):
    """Waits for it; a test that waits in vain is ended from outside."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.02)


def test_a_lease_says_who_holds_it_and_is_free_again_at_once(path):
    with lease.held(path, "the run is held") as session:
        found = lease.content(path.read_bytes())
        assert found["session"] == session
        assert found["pid"] == os.getpid()
        assert lease.is_held(path)
    assert not lease.is_held(path)
    said = []
    with lease.held(path, "the run is held", say=said.append) as again:
        assert again != session
    assert said == []


def test_a_lease_is_renewed(path, brief):
    with lease.held(path, "the run is held"):
        first = path.read_bytes()
        until(lambda: path.read_bytes() != first)
        assert lease.content(path.read_bytes())["session"] == lease.content(first)["session"]


def test_a_second_holder_is_refused_by_name(path, brief):
    said = []
    with lease.held(path, "the run is held"):
        with (
            pytest.raises(
                ConfigError, match=rf"the run is held by process {os.getpid()} on .*; wait for it or stop it"
            ),
            lease.held(path, "the run is held", say=said.append),
        ):
            raise AssertionError
        assert lease.is_held(path)
    assert len(said) == 1
    assert f"waiting up to {lease.VALID_S:.0f} s" in said[0]


@pytest.mark.slow
def test_the_lease_of_a_holder_that_was_killed_is_waited_out(path, brief):
    """A real process and a real SIGKILL."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        with lease.held(path, "the run is held"):
            os.write(done, b"1")
            signal.pause()
    os.read(ready, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ready), os.close(done)
    said = []
    with lease.held(path, "the run is held", say=said.append) as session:
        assert lease.content(path.read_bytes())["session"] == session
    assert f"by process {child} on " in said[0]


def test_a_lease_that_is_old_by_the_stores_clock_is_taken_at_once(path, object_store):
    written(path)
    object_store.buckets["bucket"]["runs/demo/main/driver.lock"].time -= 100
    said = []
    with lease.held(path, "the run is held", say=said.append):
        pass
    assert said == []


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_our_clock_does_not_count(path, object_store, ahead_s):
    object_store.ahead_s = ahead_s
    with lease.held(path, "the run is held"):
        assert lease.is_held(path)


@pytest.mark.slow
def test_where_the_store_tells_no_time_a_lease_is_watched_before_it_is_taken(path, brief, object_store, monkeypatch):
    monkeypatch.setattr(storage, "_asked_offset", lambda scheme: None)
    object_store.ahead_s = -3600.0  # by our own clock every lease is an hour old
    with (
        lease.held(path, "the run is held"),
        pytest.raises(ConfigError, match="wait for it or stop it"),
        lease.held(path, "the run is held"),
    ):
        raise AssertionError
    written(path)
    said = []
    with lease.held(path, "the run is held", say=said.append):
        assert "by process 123 on there; waiting" in said[0]


@pytest.mark.slow
def test_a_live_holder_is_waited_for_as_long_as_one_has_patience(path, brief, monkeypatch):
    monkeypatch.setattr(lease, "LOOK_S", 0.05)
    taken, ends = [], threading.Event()

    def second():
        with lease.held(path, "the run is held", patience_s=60, say=lambda text: None):
            taken.append(ends.is_set())

    with lease.held(path, "the run is held"):
        thread = threading.Thread(target=second)
        thread.start()
        first = path.read_bytes()
        until(lambda: path.read_bytes() != first)
        ends.wait(1)
        ends.set()
    thread.join()
    assert taken == [True]


def test_a_holder_that_gives_back_while_another_waits_is_followed_at_once(path, monkeypatch):
    written(path)
    looks = []

    def say(text):
        looks.append(text)
        written(path, released=True)

    with lease.held(path, "the run is held", say=say):
        assert len(looks) == 1


def race(path, monkeypatch, rivals, rounds):
    """The outcomes of each round, in which all rivals have seen a free lease before one of them takes it."""
    at_once, done, outcomes = threading.Barrier(rivals), threading.Barrier(rivals), [[] for _ in range(rounds)]
    real = lease._wait

    def wait(*arguments):
        free = real(*arguments)
        at_once.wait()
        return free

    monkeypatch.setattr(lease, "_wait", wait)

    def compete():
        for outcome in outcomes:
            try:
                with lease.held(path, "the run is held", say=outcome.append):
                    outcome.append("held")
                    done.wait()
            except ConfigError as error:
                outcome.append(str(error))
                done.wait()
            at_once.wait()  # the winner has given it back

    threads = [threading.Thread(target=compete) for _ in range(rivals)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.mark.slow
def test_of_two_that_take_it_at_the_same_moment_exactly_one_wins_without_a_pause(path, monkeypatch):
    monkeypatch.setattr(lease, "SETTLE_S", 1e6)
    for outcome in race(path, monkeypatch, rivals=2, rounds=30):
        assert outcome.count("held") == 1
        assert len(outcome) == 2
        assert any("started at the same moment" in text for text in outcome)


def test_an_expired_lease_is_taken_over_by_exactly_one_of_several(path, object_store, monkeypatch):
    for _ in range(5):
        written(path)
        object_store.buckets["bucket"]["runs/demo/main/driver.lock"].time -= 100
        with monkeypatch.context() as patch:
            (outcome,) = race(path, patch, rivals=5, rounds=1)
        assert outcome.count("held") == 1
        assert len(outcome) == 5


WITHOUT_CONDITIONS = [("refused", "HTTP 501"), ("ignored", "conditions are ignored")]


@pytest.mark.slow
@pytest.mark.parametrize("conditions", ["refused", "ignored"])
def test_in_a_store_without_conditional_writes_one_of_two_wins_after_a_pause(
    path, object_store, monkeypatch, conditions
):
    monkeypatch.setattr(lease, "SETTLE_S", patience_s(0.5))
    object_store.conditions = conditions
    (outcome,) = race(path, monkeypatch, rivals=2, rounds=1)
    assert outcome.count("held") == 1
    assert sum("started at the same moment" in text for text in outcome) == 1


@pytest.mark.parametrize(("conditions", "reason"), WITHOUT_CONDITIONS)
def test_a_store_without_conditional_writes_is_noted_in_one_line(path, brief, object_store, conditions, reason):
    object_store.conditions = conditions
    said = []
    with lease.held(path, "the run is held", say=said.append):
        first = path.read_bytes()
        until(lambda: path.read_bytes() != first)
    assert said == [
        f"{path}: this store has no conditional writes ({reason}); waiting 0.05 s instead to detect a process that "
        "starts at the same moment"
    ]
    assert lease.content(path.read_bytes())["released"]


def test_credentials_that_cannot_sign_leave_plain_writes(path, brief, monkeypatch):
    monkeypatch.setattr(conditional, "_environment_keys", lambda: None)  # pyarrow needs those of the environment
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere")
    said = []
    with lease.held(path, "the run is held", say=said.append):
        first = path.read_bytes()
        until(lambda: path.read_bytes() != first)
    assert len(said) == 1
    assert "requests cannot be signed with the credentials of AWS_WEB_IDENTITY_TOKEN_FILE" in said[0]
    assert lease.content(path.read_bytes())["released"]


@pytest.mark.slow
def test_a_write_that_happened_but_was_not_answered_is_our_own(path, object_store):
    object_store.write_faults = ["lost"]
    with lease.held(path, "the run is held") as session:
        assert object_store.write_faults == []
        assert lease.content(path.read_bytes())["session"] == session
        object_store.write_faults = ["lost"]
    assert lease.content(path.read_bytes())["released"]


def test_a_renewal_whose_answer_never_came_does_not_end_the_holder(path, brief, object_store, monkeypatch):
    """Not even when the next renewal has other content."""
    told = []
    monkeypatch.setattr(storage, "PATIENCE_S", 0.0)
    with lease.held(path, "the run is held", lost=told.append) as session:
        object_store.write_faults = ["lost"]
        until(lambda: not object_store.write_faults)
        before = path.read_bytes()
        until(lambda: path.read_bytes() != before)
    assert told == []
    assert lease.content(path.read_bytes())["session"] == session


@pytest.mark.slow
def test_a_conflict_that_nobody_won_is_tried_again(path, object_store):
    object_store.write_faults = [409, 409]
    with lease.held(path, "the run is held") as session:
        assert lease.content(path.read_bytes())["session"] == session


def test_a_renewal_after_a_takeover_fails_even_if_the_old_holder_does_not_look_first(path, brief, object_store):
    """The store refuses the write; what the new holder wrote stays."""
    told = []
    with lease.held(path, "the run is held", lost=told.append):
        with object_store.lock:
            taken = json.dumps({"session": "another", "pid": 7, "host": "there"}).encode()
            object_store.buckets["bucket"]["runs/demo/main/driver.lock"].data = taken
        until(lambda: told)
    assert path.read_bytes() == taken
    assert "the run is held by process 7 on there now" in told[0]


def test_the_content_of_a_lease_is_what_earlier_versions_read(path):
    with lease.held(path, "the run is held"):
        found = json.loads(path.read_bytes())
    assert found.keys() == {"session", "pid", "host", "began", "beats", "released"}


def test_a_holder_whose_lease_was_taken_is_notified_and_does_not_release_it(path, brief):
    told = []
    with lease.held(path, "the run is held", lost=told.append):
        written(path, session="another", pid=7)
        until(lambda: told)
    assert "the run is held by process 7 on there now" in told[0]
    assert lease.content(path.read_bytes())["session"] == "another"
    assert not lease.content(path.read_bytes())["released"]


def test_a_holder_learns_of_its_loss_even_if_it_cannot_read_who_has_the_lease(path, brief, object_store, monkeypatch):
    object_store.conditions = "refused"
    told, answers = [], []
    with lease.held(path, "the run is held", lost=told.append):

        def read(path):
            if answers:
                raise OSError(5, "Input/output error")
            answers.append(path)
            return b'{"session": "another"}'

        with monkeypatch.context() as patch:
            patch.setattr(lease, "read_if_there", read)
            until(lambda: told)
    assert "the run is held by another process now" in told[0]


@pytest.mark.long
def test_a_store_that_does_not_answer_for_a_while_costs_no_lease(path, brief, object_store, monkeypatch):
    told = []
    with lease.held(path, "the run is held", lost=told.append):
        object_store.faults = [503] * 6
        until(lambda: not object_store.faults)
        before = path.read_bytes()
        until(lambda: path.read_bytes() != before)
    assert told == []


def test_what_is_no_lease_is_nobodys(path):
    path.write_bytes(b"[1, 2")
    assert lease.content(path.read_bytes()) == {}
    assert lease.holder(path.read_bytes()) == "by another process"
    assert lease.content(None) == {}

"""`disentune stop`: a request that any machine can leave for the driver of a run."""

import threading

from disentune.cli import stop


def test_a_run_that_is_not_running_has_nothing_to_stop(disentune, finished):
    code, out, _ = disentune("stop", "tiny")
    assert code == 0
    assert out == (
        "runs/tiny/main is not running, so there is nothing to stop\n"
        "see how far it is: disentune status runs/tiny/main\n"
    )
    assert finished.stop_reason() is None


def test_a_running_run_is_asked_once_and_the_next_session_forgets_it(disentune, finished):
    with finished.locked():
        code, out, _ = disentune("stop", "tiny")
        assert code == 0
        assert out.startswith("asked runs/tiny/main to stop: its trials write their checkpoints and end\n")
        assert "disentune resume runs/tiny/main" in out
        assert finished.stop_reason().startswith("disentune stop on ")
        assert "is already stopping (disentune stop on " in disentune("stop", "tiny")[1]
    with finished.locked():
        assert finished.stop_reason() is None


def test_waiting_ends_when_the_driver_has_ended(disentune, finished, monkeypatch):
    monkeypatch.setattr(stop, "PLAIN_INTERVAL_S", 0.02)
    driver = finished.locked()
    driver.__enter__()

    def end_when_asked():
        while finished.stop_reason() is None:
            pass
        driver.__exit__(None, None, None)

    ending = threading.Thread(target=end_when_asked)
    ending.start()
    code, out, _ = disentune("stop", "tiny", "--wait")
    ending.join()
    assert code == 0
    assert out.endswith("all 12 trials have ended\nnext: disentune results runs/tiny/main\n")
    assert not finished.is_running()


def test_an_unknown_run_is_wrong_input(disentune, finished):
    code, _, err = disentune("stop", "tinny")
    assert (code, "no run 'tinny'" in err) == (2, True)

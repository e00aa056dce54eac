"""On PYTHONPATH: the clock of every Python process of a sweep jumps as soon as the file CLOCK has seconds in it.

A process in which it did leaves a file `<CLOCK>.<seconds>.<pid>`.
"""

import os
import time

CLOCK = os.environ["CLOCK"]
EVERY_S = 0.05
_true, _true_ns = time.time, time.time_ns
_known = {"ahead_s": 0, "looked": 0.0}


def _ahead_s():
    now = time.monotonic()
    if now - _known["looked"] > EVERY_S:
        _known["looked"] = now
        try:
            with open(CLOCK) as file:
                ahead_s = int(file.read() or 0)
        except FileNotFoundError:
            ahead_s = 0
        if ahead_s != _known["ahead_s"]:
            _known["ahead_s"] = ahead_s
            open(f"{CLOCK}.{ahead_s}.{os.getpid()}", "w").close()
    return _known["ahead_s"]


time.time = lambda: _true() + _ahead_s()
time.time_ns = lambda: _true_ns() + _ahead_s() * 10**9

"""On PYTHONPATH: syncs of files below the folder DISK are slow, or fail once per kind of file, as DISK_FAULTS says.

DISK_FAULTS is {"slow_s": the longest wait for a sync, "fails": {part of a path: which sync of a process}}. A sync that
fails leaves the file `<DISK>.<part>`. While a sync waits, its process's `<DISK>.<pid>` has the path.
"""

import errno
import json
import os
import random
import time

DISK, FAULTS = os.environ["DISK"], json.loads(os.environ["DISK_FAULTS"])
_true = os.fsync
_chance = random.SystemRandom()
_counted = dict.fromkeys(FAULTS["fails"], 0)


def fsync(handle):
    path = os.readlink(f"/proc/self/fd/{handle}")
    if path.startswith(f"{DISK}/"):
        _wait(path)
        for part in FAULTS["fails"]:
            if part in path and _is_the_one(part):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    _true(handle)


def _wait(path):
    if FAULTS["slow_s"]:
        mark = f"{DISK}.{os.getpid()}"
        with open(mark, "w") as file:
            file.write(path)
        time.sleep(_chance.uniform(0, FAULTS["slow_s"]))
        os.unlink(mark)


def _is_the_one(part):
    """Whether this sync fails: it is the first of all processes that has come to this number."""
    _counted[part] += 1
    if _counted[part] != FAULTS["fails"][part]:
        return False
    try:
        open(f"{DISK}.{part}", "x").close()
    except FileExistsError:
        return False
    return True


os.fsync = fsync

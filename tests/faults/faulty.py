"""A beta-VAE that goes wrong where the file `fault.json` of the folder named by FAULTS says so, and only there.

Copied into the folder that a sweep is started from, and named by its import path in the sweep.
"""

import json
import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import torch

from disentune.frameworks import FRAMEWORKS

PATIENCE_S = 1200
"""Whoever waits for a held trial gives up before."""
PLAIN = FRAMEWORKS["beta_vae"]


def loss(model, batch, params, step):
    losses = PLAIN.loss(model, batch, params, step)
    for fault in _planned():
        if fault["step"] == step.number and fault.get("beta", params.beta) == params.beta:
            losses = FAULTS[fault["kind"]](losses, Path(os.environ["FAULTS"]) / fault["kind"])
    return losses


def _planned():
    try:
        return json.loads((Path(os.environ.get("FAULTS", "/nowhere")) / "fault.json").read_bytes())
    except FileNotFoundError:
        return []


def _is_first(mark):
    """Leaves the mark that the fault has happened; False where there is one."""
    try:
        with open(mark, "x") as file:
            file.write(str(os.getpid()))
        return True
    except FileExistsError:
        return False


# ---- every time


def _nan(losses, mark):
    _is_first(mark)
    return replace(losses, recon=losses.recon * torch.nan)


def _inf(losses, mark):
    _is_first(mark)
    return replace(losses, recon=losses.recon + torch.inf)


def _error(losses, mark):
    _is_first(mark)
    raise ZeroDivisionError("made to go wrong")


# ---- once


def _hold(losses, mark):
    """Waits for the file `hold.go`: whoever makes it knows where this trial stands."""
    deadline = time.monotonic() + PATIENCE_S
    if _is_first(mark):
        while not mark.with_suffix(".go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    return losses


def _memory(losses, mark):
    if _is_first(mark):
        raise MemoryError("made to go wrong")
    return losses


def _gpu_memory(losses, mark):
    if _is_first(mark):
        raise torch.OutOfMemoryError("CUDA out of memory, it was made to say")
    return losses


def _address_space(losses, mark):
    """The operating system itself refuses: the process may take 64 MB more, and the trial asks for 4 GB."""
    if not _is_first(mark):
        return losses
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (64 << 20), before[1]))
    try:
        torch.empty(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    raise AssertionError("more memory was given than there may be")


FAULTS = {
    "nan": _nan, "inf": _inf, "error": _error, "hold": _hold, "memory": _memory, "gpu_memory": _gpu_memory,
    "address_space": _address_space,
}  # fmt: skip
FRAMEWORK = replace(PLAIN, name="faulty", loss=loss)

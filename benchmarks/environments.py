"""Rivals in environments of their own, made once from the requirements in rivals/; and processes under a clock."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

RIVALS = Path(__file__).resolve().parent / "rivals"
OURS = Path(sys.executable).with_name("disentune")


class NotInstallable(Exception):
    """With pip's last words."""


def cache() -> Path:
    return Path(os.environ.get("DISENTUNE_BENCH_CACHE", "~/.cache/disentune-bench")).expanduser()


def python_of(rival: str, beside_ours: bool = False) -> Path:
    """The interpreter that runs a rival. With `beside_ours` it sees our packages too, so that both train with the same
    code. Raises NotInstallable."""
    requirements = RIVALS / f"{rival}.txt"
    folder = cache() / f"{rival}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:8]}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {rival} into {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _call([sys.executable, "-m", "venv", str(folder)])
        if beside_ours:
            line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
            (_site_packages(python) / "ours.pth").write_text(line)
        _call([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(requirements)])
        (folder / "ready").touch()
    return python


def _site_packages(python: Path) -> Path:
    told = _call([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    return Path(told.strip())


def _call(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotInstallable("\n".join(done.stderr.strip().splitlines()[-3:]))
    return done.stdout


@contextmanager
def serving(command: Sequence[str], steps: int) -> Iterator[Callable[[], float]]:
    """A timer that makes a process of its own do `steps` steps: it reads their number and answers with CPU seconds per
    step, line by line."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment())
    assert process.stdin is not None
    assert process.stdout is not None
    orders, answers = process.stdin, process.stdout

    def timer() -> float:
        orders.write(f"{steps}\n")
        orders.flush()
        return float(answers.readline())

    try:
        yield timer
    finally:
        orders.close()
        process.wait()


def environment(**more: str) -> dict[str, str]:
    """Of a process that is measured: one thread, whatever the shell says."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "WANDB_MODE": "disabled", **more}


@contextmanager
def workplace() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder to work in, and variables for processes that keep everything in it, Ray's sessions included. Nothing of
    it stays behind, nor when we are asked to end. Its path is short: Ray makes sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="dtb-", dir="/tmp"))
    variables = environment(RAY_TMPDIR=str(folder / "r"), SYNETUNE_FOLDER=str(folder / "syne"), TMPDIR=str(folder))
    (folder / "r").mkdir()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("asked to end"))
    try:
        yield folder, variables
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in started_in(folder):
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def started_in(folder: Path) -> list[psutil.Process]:
    """Processes that were given this workplace and still live. Some of Ray's overwrite their variables with a title,
    but keep their logs open."""
    return [one for one in psutil.process_iter() if one.pid != os.getpid() and _works_in(one.pid, folder)]


def _works_in(pid: int, folder: Path) -> bool:
    process = Path(f"/proc/{pid}")
    try:
        if f"TMPDIR={folder}\0".encode() in (process / "environ").read_bytes():
            return True
        return any(os.readlink(handle).startswith(f"{folder}/") for handle in (process / "fd").iterdir())
    except OSError:  # it has just ended, or is someone else's
        return False


def kill_and_wait(process: "subprocess.Popen[bytes]", folder: Path, patience_s: float = 5) -> None:
    """As a power cut would: the driver dies at once. Ray's workers end when they notice; its agents try to tell the
    dead of it for a minute, and are not waited for."""
    process.kill()
    process.wait()
    deadline = time.monotonic() + patience_s
    while (left := started_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for one in left:
        one.kill()


def seconds_of(command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]) -> float:
    """Wall time of a whole command; its words go to a file, which is shown when it fails."""
    log = folder / "log.txt"
    began = time.perf_counter()
    with open(log, "wb") as out:
        done = subprocess.run(
            [str(word) for word in command], cwd=folder, env=dict(variables), stdout=out, stderr=subprocess.STDOUT
        )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
    return seconds

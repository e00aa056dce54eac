"""Puts sweeps through every case several times, adds what happened to matrix.jsonl, and writes how often they survived,
in all runs so far, into docs/reliability.md. The next case is always one with the fewest runs.

From the folder tests: `python -m faults.matrix --times 2`, or `--minutes 30`

The first two runs of each case are older than matrix.jsonl; of their times only the median is known.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from disentune.environment import environment
from faults.cases import CASES
from faults.harness import HERE, Calms, Case, survive

PAGE = HERE.parent.parent / "docs" / "reliability.md"
KEPT = HERE / "matrix.jsonl"
BEGIN, END = "<!-- written by tests/faults/matrix.py -->", "<!-- until here -->"


@dataclass(frozen=True)
class Attempt:
    """What came of a case with a seed; `resumed_s` is None where no row was missing."""

    case: str
    seed: int
    survived: bool
    resumed_s: float | None
    commit: str | None


def try_out(case: Case, seed: int, calms: Calms, commit: str | None) -> Attempt:
    began, seconds, survived = time.monotonic(), None, True
    try:
        with tempfile.TemporaryDirectory(prefix="disentune-", ignore_cleanup_errors=True) as folder:
            seconds = survive(case, seed, calms, Path(folder))
    except Exception:
        _say(traceback.format_exc())
        survived = False
    what = "survived" if survived else "lost"
    _say(f"{case.name}, seed {seed}: {what}, {time.monotonic() - began:.0f} s in all")
    return Attempt(case.name, seed, survived, seconds if seconds is None else round(seconds, 1), commit)


def kept(path: Path) -> list[Attempt]:
    """The attempts so far, oldest first."""
    return [Attempt(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def add(path: Path, attempt: Attempt) -> None:
    with open(path, "a") as file:
        file.write(json.dumps(asdict(attempt)) + "\n")


def markdown(case: Case, attempts: Iterable[Attempt]) -> str:
    """A line of the table."""
    own = [attempt for attempt in attempts if attempt.case == case.name]
    seconds = [attempt.resumed_s for attempt in own if attempt.resumed_s is not None]
    median, survived = f"{statistics.median(seconds):.0f}" if seconds else "–", sum(one.survived for one in own)
    return f"| {case.name} | {', '.join(case.pair)} | {survived} of {len(own)} | {median} |"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write(attempts: list[Attempt], page: Path) -> None:
    head = ["| what happens | search, scheduler | survived | seconds from `resume` to the first new row (median) |"]
    table = "\n".join([*head, "|---|---|---|---|", *(markdown(case, attempts) for case in CASES)])
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")


def upcoming(cases: Sequence[Case], known: Sequence[Attempt]) -> tuple[Case, int]:
    """The first case with the fewest attempts, and a seed that it has not had."""
    times = Counter(attempt.case for attempt in known)
    case = min(cases, key=lambda one: times[one.name])
    return case, 1 + max((attempt.seed for attempt in known if attempt.case == case.name), default=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, help="attempts per case, on average; default: 2, or any number in MINUTES")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no attempt after so many")
    parser.add_argument("--only", default="", help="cases with these words in their names")
    parser.add_argument("--seed", type=int, help="of every attempt; default: the first that the case has not had")
    asked, began = parser.parse_args(), time.monotonic()
    end = began + 60 * asked.minutes
    cases = [case for case in CASES if asked.only in case.name]
    most = len(cases) * (asked.times or (2 if end == math.inf else sys.maxsize))
    commit, attempts = environment().get("commit"), list[Attempt]()
    with tempfile.TemporaryDirectory(prefix="disentune-calm-") as folder:
        calms = Calms(Path(folder))
        while len(attempts) < most and time.monotonic() < end:
            case, seed = upcoming(cases, kept(KEPT))
            attempts.append(try_out(case, asked.seed or seed, calms, commit))
            add(KEPT, attempts[-1])
            write(kept(KEPT), PAGE)
    return 0 if all(attempt.survived for attempt in attempts) else 1


if __name__ == "__main__":
    sys.exit(main())

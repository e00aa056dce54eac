"""Puts sweeps through every case several times, and writes how often they survived into docs/reliability.md.

From the folder tests: `python -m faults.matrix --times 2`
"""

import argparse
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from faults.cases import CASES
from faults.harness import HERE, Calms, Case, survive

PAGE = HERE.parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- written by tests/faults/matrix.py -->", "<!-- until here -->"


@dataclass
class Line:
    """What came of a case."""

    case: Case
    times: int = 0
    survived: int = 0
    resumed_s: list[float] = field(default_factory=list)

    def markdown(self) -> str:
        seconds = f"{statistics.median(self.resumed_s):.0f}" if self.resumed_s else "–"
        return f"| {self.case.name} | {', '.join(self.case.pair)} | {self.survived} of {self.times} | {seconds} |"


def try_out(line: Line, seed: int, calms: Calms) -> None:
    line.times += 1
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="disentune-", ignore_cleanup_errors=True) as folder:
            seconds = survive(line.case, seed, calms, Path(folder))
    except Exception:
        _say(traceback.format_exc())
        _say(f"{line.case.name}, seed {seed}: lost after {time.monotonic() - began:.0f} s")
        return
    line.survived += 1
    if seconds is not None:
        line.resumed_s.append(seconds)
    _say(f"{line.case.name}, seed {seed}: survived, {time.monotonic() - began:.0f} s in all")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def write(lines: list[Line], page: Path) -> None:
    head = ["| what happens | search, scheduler | survived | seconds from `resume` to the first new row (median) |"]
    table = "\n".join([*head, "|---|---|---|---|", *(line.markdown() for line in lines)])
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--only", default="", help="cases with these words in their names; nothing is written then")
    parser.add_argument("--seed", type=int, default=1, help="of the first time")
    asked = parser.parse_args()
    lines = [Line(case) for case in CASES if asked.only in case.name]
    with tempfile.TemporaryDirectory(prefix="disentune-calm-") as folder:
        calms = Calms(Path(folder))
        for seed in range(asked.seed, asked.seed + asked.times):
            for line in lines:
                try_out(line, seed, calms)
    if not asked.only:
        write(lines, PAGE)
    return 0 if all(line.survived == line.times for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())

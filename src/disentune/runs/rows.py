"""The rows of a trial: one line of rows.jsonl per logged or evaluated step.

Each line ends with a hash of its row, of the hash before it and, in the first line, of the trial's id. A row that was
altered, removed, repeated or moved breaks this chain, and only the rows before the break count. Rows that an earlier
version wrote have no hashes; the first hash after them covers them all.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from disentune.errors import ConfigError
from disentune.files.storage import Place, RemotePath, read_bytes
from disentune.runs.json_files import is_number, is_whole, parsed
from disentune.spec.config import row_steps
from disentune.spec.settings import may_change

# ---- the chain of hashes


_LINKED = re.compile(rb', "hash": "([0-9a-f]{16})"\}\Z')
_ALMOST = re.compile(rb': "[^"]{16}"\}\Z')
"""How a line ends whose hash was damaged; no row ends so without one."""


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest()[:16].encode()


def linked(before: bytes, row: bytes) -> bytes:
    """The line of a row (JSON text) that follows a hash."""
    return row[:-1] + b', "hash": "' + _hash(before + b" " + row) + b'"}\n'


def is_linked(line: bytes) -> bool:
    """Whether a line ends with a hash."""
    return _LINKED.search(line.removesuffix(b"\n")) is not None


def end_of(trial_id: str, text: bytes) -> bytes:
    """The hash that the next row of this text follows."""
    found = _LINKED.search(text.removesuffix(b"\n"))
    return found[1] if found else _hash(trial_id.encode() + b"\n" + text)


def chained(trial_id: str, rows: Iterable[bytes]) -> bytes:
    """The text of rows.jsonl with these rows."""
    lines, before = list[bytes](), end_of(trial_id, b"")
    for row in rows:
        lines.append(linked(before, row))
        before = end_of(trial_id, lines[-1])
    return b"".join(lines)


@dataclass(frozen=True)
class Flaw:
    """The first line that does not belong where it is, and the last step before it."""

    line: int
    after: int = 0

    def __str__(self) -> str:
        after = f" (after step {self.after})" if self.after else ""
        return f"line {self.line}{after} was altered, repeated or moved, or a row before it is missing"


class Chain:
    """Follows the hashes of a trial's lines."""

    def __init__(self, trial_id: str):
        self._loose = hashlib.sha256(trial_id.encode() + b"\n")
        """Covers the lines without a hash."""
        self._last: bytes | None = None

    @property
    def is_linked(self) -> bool:
        """Whether a line had a hash."""
        return self._last is not None

    def follow(self, lines: Sequence[bytes]) -> list[bytes]:
        """The rows of the next lines, up to the first that does not follow."""
        rows: list[bytes] = []
        for line in lines:
            found = _LINKED.search(line)
            if found is None:
                if self.is_linked or _ALMOST.search(line):
                    break
                self._loose.update(line + b"\n")
                rows.append(line)
                continue
            row = line[: found.start()] + b"}"
            if found[1] != _hash((self._last or self._loose.hexdigest()[:16].encode()) + b" " + row):
                return rows if self.is_linked else []  # any of the lines without a hash may have been altered
            self._last = found[1]
            rows.append(row)
        return rows


@dataclass
class RowReader:
    """Reads rows.jsonl while it grows: each call returns the rows completed since the previous call, without their
    hashes, up to the first line that breaks the chain. An incomplete last line is skipped, and a missing file has no
    rows."""

    path: Place
    offset: int = 0
    lines: int = 0
    flaw: Flaw | None = None
    """Set once the chain is broken; no later row counts."""
    _step: int = 0
    _chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._chain = Chain(self.path.parent.name)

    def rows(self) -> list[dict[str, Any]]:
        """Raises ConfigError for a line that is not a row, unless a hash shows that it was one."""
        rows: list[dict[str, Any]] = []
        first = self.lines + 1
        for number, line in enumerate(self._new_lines(), first):
            try:
                rows.append(parsed_row(line))
            except (ValueError, RecursionError):
                if not self._chain.is_linked:
                    raise self._damage(number) from None
                self.flaw = Flaw(number)
                break
        self._step = last_step(rows) or self._step
        if self.flaw:
            self.flaw = Flaw(self.flaw.line, self._step)
        return rows

    def loose_rows(self) -> list[Any]:
        """The unchecked content of each line; None for a line that is not JSON."""
        return [_loosely_parsed(line) for line in self._new_lines()]

    def _new_lines(self) -> list[bytes]:
        """The text of each new row."""
        try:
            data = self._rest()
        except FileNotFoundError:
            return []
        *complete, torn = data.split(b"\n")
        self.offset += len(data) - len(torn)
        rows = [] if self.flaw else self._chain.follow(complete)
        if len(rows) < len(complete) and not self.flaw:
            self.flaw = Flaw(self.lines + len(rows) + 1)
        self.lines += len(complete)
        return rows

    def _rest(self) -> bytes:
        """An object is read completely if it has grown."""
        if self.offset and isinstance(self.path, RemotePath) and self.path.stat().st_size <= self.offset:
            return b""
        return read_bytes(self.path, start=self.offset)

    def _damage(self, number: int) -> ConfigError:
        return ConfigError(
            f"{self.path}:{number} is damaged; remove the folder {self.path.parent}, and the trial is computed "
            "again with the same numbers"
        )


def _loosely_parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def parsed_row(line: bytes) -> dict[str, Any]:
    row = parsed(line)
    if not isinstance(row, dict) or not is_whole(row.get("step")) or not isinstance(row.get("metrics"), dict):
        raise ValueError("a row must have a step and metrics")
    if not all(value is None or is_number(value) for value in row["metrics"].values()):
        raise ValueError("metrics must be numbers")
    if not all(isinstance(row.get(part, {}), dict) for part in ("overrides", "clock", "details", "scored", "notes")):
        raise ValueError("the parts of a row must be mappings")
    if not all(map(_may_change, row.get("overrides", {}))):
        raise ValueError(
            "an override may only change keys that can change during training, and must not name a plug-in"
        )
    return row


def with_end(row: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, Any]:
    """A row merged with the scores that the end of its trial added at the same step."""
    parts = ("metrics", "details", "scored", "notes")
    return {**row, **{part: {**row.get(part, {}), **end[part]} for part in parts if part in end}}


def _may_change(key: str) -> bool:
    """Whether a key may change during training. Plug-in names may not: a plug-in named in foreign rows would be
    imported."""
    return may_change(key) and not key.endswith(".name")


def last_step(rows: list[dict[str, Any]]) -> int:
    return rows[-1]["step"] if rows else 0


def missing_row(tree: Mapping[str, Any], reached: int, steps: Iterable[int]) -> int | None:
    """The first step, up to the one a trial has reached, that must have a row but has none."""
    known = set(steps)
    return next((step for step in row_steps(tree, reached) if step not in known), None)


def first_gap(tree: Mapping[str, Any], reached: int, steps: Iterable[int], flaw: Flaw | None) -> int | None:
    """The first step whose row is missing or damaged: rows behind a damaged line may be of any step."""
    return missing_row(tree, tree["training"]["steps"] if flaw else reached, steps)


def missing_rows_note(gaps: Mapping[str, int]) -> str:
    """A note on trials with missing rows, given by the first missing step of each."""
    trial_id, step = next(iter(gaps.items()))
    trials = "1 trial lacks" if len(gaps) == 1 else f"{len(gaps)} trials lack"
    return f"{trials} rows that had been written ({trial_id} from step {step} on)"


def broken_rows_note(flaws: Mapping[str, Flaw]) -> str:
    """A note on trials whose rows are not as they were written."""
    trial_id, flaw = next(iter(flaws.items()))
    trials = "1 trial has" if len(flaws) == 1 else f"{len(flaws)} trials have"
    return f"{trials} damaged rows ({trial_id}/rows.jsonl: {flaw}), and only the rows before the damage count"


def sound_rows(trial_id: str, text: bytes) -> dict[int, bytes]:
    """The row of each step, up to the first line that is not a row or breaks the chain."""
    by_step: dict[int, bytes] = {}
    for row in Chain(trial_id).follow(text.split(b"\n")[:-1]):
        try:
            by_step.setdefault(parsed_row(row)["step"], row)
        except (ValueError, RecursionError):
            break
    return by_step


def united(trial_id: str, *texts: bytes) -> bytes:
    """Rows of several texts, sorted, one per step; the first text that has a step counts."""
    by_step: dict[int, bytes] = {}
    for text in reversed(texts):
        by_step |= sound_rows(trial_id, text)
    return chained(trial_id, (by_step[step] for step in sorted(by_step)))


def last_line(file: BinaryIO) -> bytes:
    """The last line of a file that ends with a newline, or is empty."""
    end, span = file.seek(0, os.SEEK_END), 1 << 14
    while True:
        start = max(0, end - span)
        file.seek(start)
        tail = file.read(end - start)
        if start == 0 or b"\n" in tail[:-1]:
            return tail[tail[:-1].rfind(b"\n") + 1 :]
        span *= 8


def step_of(line: bytes) -> int | None:
    """The step of a line; None if it is not a row."""
    try:
        return int(parsed_row(line)["step"])
    except (ValueError, RecursionError):
        return None


def cut_torn_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)

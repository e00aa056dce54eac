"""The rows of a trial: one line of rows.jsonl per logged or evaluated step."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from disentune.errors import ConfigError
from disentune.files.storage import Place, RemotePath, read_bytes
from disentune.runs.json_files import is_number, is_whole, parsed
from disentune.spec.config import row_steps
from disentune.spec.settings import may_change


@dataclass
class RowReader:
    """Reads rows.jsonl while it grows: each call returns the rows completed since the previous call. An incomplete last
    line is skipped, and a missing file has no rows."""

    path: Place
    offset: int = 0
    lines: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """Raises ConfigError for a line that is not a row."""
        first = self.lines + 1
        return [self._row(number, line) for number, line in enumerate(self._new_lines(), first)]

    def loose_rows(self) -> list[Any]:
        """The unchecked content of each line; None for a line that is not JSON."""
        return [_loosely_parsed(line) for line in self._new_lines()]

    def _new_lines(self) -> list[bytes]:
        try:
            data = self._rest()
        except FileNotFoundError:
            return []
        *complete, torn = data.split(b"\n")
        self.offset += len(data) - len(torn)
        self.lines += len(complete)
        return complete

    def _rest(self) -> bytes:
        """An object is read completely if it has grown."""
        if self.offset and isinstance(self.path, RemotePath) and self.path.stat().st_size <= self.offset:
            return b""
        return read_bytes(self.path, start=self.offset)

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            return parsed_row(line)
        except (ValueError, RecursionError):
            raise ConfigError(
                f"{self.path}:{number} is damaged; remove the folder {self.path.parent}, and the trial is computed "
                "again with the same numbers"
            ) from None


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


def missing_rows_note(gaps: Mapping[str, int]) -> str:
    """A note on trials with missing rows, given by the first missing step of each."""
    trial_id, step = next(iter(gaps.items()))
    trials = "1 trial lacks" if len(gaps) == 1 else f"{len(gaps)} trials lack"
    return f"{trials} rows that had been written ({trial_id} from step {step} on)"


def united(*texts: bytes) -> bytes:
    """Rows of several texts, sorted, one per step; the first text that has a step counts."""
    by_step: dict[int, bytes] = {}
    for line in (line for text in texts for line in text.splitlines(keepends=True)):
        by_step.setdefault(parsed_row(line)["step"], line)
    return b"".join(by_step[step] for step in sorted(by_step))


def cut_torn_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)

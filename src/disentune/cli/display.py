"""Formats sizes, times, numbers, tables and the plan of a sweep for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from disentune.environment import without_secrets
from disentune.errors import counted_trials
from disentune.results.watch import duration

if TYPE_CHECKING:
    import pandas as pd

    from disentune.runs.preview import Cost, Plan


def clock(seconds: float) -> str:
    """`0:45`, `3:20`, `2:05:00`: a shorter form of `duration`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


# ---- the plan


def show_plan(
    console: Console,
    plan: Plan,
    cost: Cost,
    where: str,
    slots: int | None,
) -> None:
    console.print(f"[bold]{escape(plan.sweep)}[/]: {counted_trials(plan.trials)} in {escape(where)}")
    table = Table(box=None, pad_edge=False)
    table.add_column("arm")
    table.add_column("trials", justify="right")
    for arm, trials in plan.arms.items():
        table.add_row(escape(arm), str(trials))
    console.print(table)
    steps = sorted(plan.continuing.values())
    resumed = f" (from step {steps[0]} to {steps[-1]})" if steps else ""
    taken = "".join(f"{count} taken over from {source}, " for source, count in plan.taken.items())
    console.print(f"{plan.done} done, {escape(taken)}{len(plan.continuing)} to continue{resumed}, {plan.new} new\n"
                  f"checkpoints take about {size(cost.disk)}, and {size(cost.disk_while_training)} "
                  "more per trial while it trains")  # fmt: skip
    if cost.seconds is not None:
        wall = f", about {duration(cost.seconds / slots)} on {slots} slots" if slots else ""
        console.print(
            f"about {duration(cost.seconds)} on one slot{wall} (estimated by training a few steps of each arm)"
        )
    if restored := len(plan.transfers.restore):
        console.print(f"{restored} {_trials(restored)} restored from dropped/")
    if plan.dropped:
        console.print(escape(aside(plan.dropped)))
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/] {escape(warning)}")


def aside(count: int) -> str:
    """A note about trials that `run --drop` has set aside."""
    where = "in the run's folder dropped/"
    them = "it" if count == 1 else "them"
    return f"{count} {_trials(count)} set aside {where}; running a sweep that contains {them} restores {them}"


def _trials(count: int) -> str:
    return "trial" if count == 1 else "trials"


# ---- scores


def score_lines(name: str, numbers: Mapping[str, float], reason: str, seconds: float, widths: tuple[int, int]) -> str:
    """One line per number of a metric, or why it has no score; `widths` are the widths of the names and the keys."""
    first, second = widths
    if not numbers:
        return f"{name:<{first}}  {reason}"
    lines = [f"{name:<{first}}  {key:<{second}}  {number(value):>10}" for key, value in numbers.items()]
    return "\n".join([f"{lines[0]}  {seconds:>7.2f} s", *(" " * first + line[first:] for line in lines[1:])])


# ---- values and tables


def plain(text: str) -> str:
    """The text of an error without secrets, colours and other terminal control codes."""
    return "".join(char for char in Text.from_ansi(without_secrets(text)).plain if char.isprintable())


def number(value: object) -> str:
    """A number with few digits; files and --json have every digit."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return "" if value is None or type(value).__name__ == "NAType" else str(value)  # pandas.NA, without pandas


def assignment(key: str, value: object) -> str:
    """`beta=0.01`, or just the name of a plug-in."""
    last = key.split(".")[-1]
    return number(value) if last == "name" else f"{last}={number(value)}"


def frame_table(frame: pd.DataFrame, columns: Sequence[str] | None = None, most: int | None = None) -> Table:
    """All columns, or those named; all rows, or the first."""
    from pandas.api.types import is_numeric_dtype

    from disentune.results.tables import short_title, titles

    columns, table = list(frame.columns) if columns is None else columns, Table(box=None, pad_edge=False)
    for column, title in zip(columns, titles(columns, short_title), strict=True):
        numeric = is_numeric_dtype(frame[column])
        table.add_column(escape(title), justify="right" if numeric else "left", overflow="fold")
    for values in frame[list(columns)].head(most if most is not None else len(frame)).itertuples(index=False):
        table.add_row(*(escape(number(value)) for value in values))
    return table

"""What a person reads: sizes, times, numbers, tables and the plan of a sweep."""

from collections.abc import Mapping, Sequence

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from disentune.environment import without_secrets
from disentune.results.tables import titles
from disentune.results.watch import duration
from disentune.runs.preview import Cost, Plan


def clock(seconds: float) -> str:
    """`0:45`, `3:20`, `2:05:00`: as `duration`, where there is little room."""
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
    orders: Mapping[str, str] | None = None,
) -> None:
    """`orders`: how well the loss of each arm orders the factors, before anything is trained."""
    console.print(f"[bold]{escape(plan.sweep)}[/]: {plan.trials} trials in {escape(where)}")
    table = Table(box=None, pad_edge=False)
    table.add_column("arm")
    table.add_column("trials", justify="right")
    if orders:
        table.add_column("order (disentune inspect)")
    for arm, trials in plan.arms.items():
        table.add_row(escape(arm), str(trials), *([escape(orders[arm])] if orders else []))
    console.print(table)
    steps = sorted(plan.continuing.values())
    resumed = f" (from step {steps[0]} to {steps[-1]})" if steps else ""
    console.print(f"{plan.done} done, {len(plan.continuing)} continue{resumed}, {plan.new} new; "
                  f"checkpoints take about {size(cost.disk)}")  # fmt: skip
    if cost.seconds is not None:
        wall = f", about {duration(cost.seconds / slots)} on {slots} slots" if slots else ""
        console.print(f"about {duration(cost.seconds)} of one slot{wall} (by a probe of each arm)")
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/] {escape(warning)}")


# ---- scores


def score_lines(name: str, numbers: Mapping[str, float], reason: str, seconds: float, widths: tuple[int, int]) -> str:
    """A line for each number of a metric, or its reason for having none; `widths` are of the names and the keys."""
    first, second = widths
    if not numbers:
        return f"{name:<{first}}  {reason}"
    lines = [f"{name:<{first}}  {key:<{second}}  {number(value):>10}" for key, value in numbers.items()]
    return "\n".join([f"{lines[0]}  {seconds:>7.2f} s", *(" " * first + line[first:] for line in lines[1:])])


# ---- values and tables


def plain(text: str) -> str:
    """Without the keys, the colours and other commands to a terminal that an error's text may hold."""
    return "".join(char for char in Text.from_ansi(without_secrets(text)).plain if char.isprintable())


def number(value: object) -> str:
    """Short for people; files and --json have every digit."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return "" if value is None or value is pd.NA else str(value)


def assignment(key: str, value: object) -> str:
    """`beta=0.01`, or the bare name of a plug-in."""
    last = key.split(".")[-1]
    return number(value) if last == "name" else f"{last}={number(value)}"


def without_section(key: str) -> str:
    """`prior.nu` for `framework.prior.nu`; the name of a plug-in keeps it."""
    return key if key.endswith(".name") and key.count(".") == 1 else key.split(".", 1)[-1]


def frame_table(frame: pd.DataFrame, columns: Sequence[str] | None = None, most: int | None = None) -> Table:
    """All columns, or those named; all rows, or the first."""
    columns, table = list(frame.columns) if columns is None else columns, Table(box=None, pad_edge=False)
    for column, title in zip(columns, titles(columns, without_section), strict=True):
        numeric = pd.api.types.is_numeric_dtype(frame[column])
        table.add_column(escape(title), justify="right" if numeric else "left", overflow="fold")
    for values in frame[list(columns)].head(most if most is not None else len(frame)).itertuples(index=False):
        table.add_row(*(escape(number(value)) for value in values))
    return table

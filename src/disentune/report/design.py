"""The design of a sweep, derived from its trials: which keys differ, in which arms, and which trials are replicates.

Every kind of figure gets its groups from here, so that no mean silently mixes trials of different settings.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from disentune.report.canvas import MISSING

MOST_SERIES = 7
"""Number of colours, so that no colour has two meanings."""
MOST_PANELS = 9
FEWEST_DRAWN = 4
"""With fewer values, a number counts as coming from a grid."""


# ---- keys of a table of trials


def varies(frame: pd.DataFrame, key: str) -> bool:
    return key in frame and frame[key].nunique(dropna=False) > 1


def crossed(frame: pd.DataFrame, key: str, other: str) -> bool:
    """Whether `key` varies where `other` does not; if not, it is redundant with `other`."""
    if key not in frame or other not in frame:
        return False
    return bool(frame[key].groupby(filled(frame[other]), sort=False).nunique(dropna=False).max() > 1)


def swept(frame: pd.DataFrame, key: str) -> bool:
    """Whether a key varies for another reason than that each plug-in of its section has its own value."""
    name = f"{key.split('.')[0]}.name"
    return varies(frame, key) and (key == name or not varies(frame, name) or crossed(frame, key, name))


def filled(column: pd.Series) -> pd.Series:
    """The values, with a label for missing ones."""
    return column.astype(object).where(column.notna(), MISSING)


def is_number(column: pd.Series) -> bool:
    return is_numeric_dtype(column) and not is_bool_dtype(column)


# ---- the design


@dataclass(frozen=True)
class Design:
    """What a run varies. Two trials with the same arm and the same values of `keys` differ only by seed."""

    trials: pd.DataFrame
    """One row per trial id: the arm, the seed and every key that varies; missing values have a label."""
    keys: tuple[str, ...]
    """The keys that distinguish groups, `arm` first if there are several, without keys that follow from others."""
    within: dict[str, tuple[str, ...]]
    """For each key that is swept within some arm: those arms."""
    by_arm: tuple[str, ...]
    """Keys that differ between arms but within none: they are confounded with the arm."""
    sampled: tuple[str, ...]
    """Numbers that were drawn at random or suggested, so that almost no two points share a value."""

    def of(self, ids: Iterable[str]) -> "Design":
        """The same keys over fewer trials."""
        return Design(self.trials.loc[list(ids)], self.keys, self.within, self.by_arm, self.sampled)

    def count(self, keys: Iterable[str]) -> int:
        """The number of combinations of values."""
        return int(self._numbers(list(keys)).nunique())

    def hidden(self, shown: Iterable[str | None]) -> list[str]:
        """Keys that differ between trials with equal shown keys: what a mean over such trials would mix."""
        asked = [key for key in shown if key is not None]
        groups = self._numbers(asked)
        others = [key for key in self.keys if key not in asked]
        if self.sampled:  # almost no two points share a value, so groups would hide how neighbours differ
            return [key for key in others if varies(self.trials, key)]
        return [key for key in others if _most(self.trials[key], groups) > 1]

    def is_crossing(self, shown: Iterable[str | None], hidden: Sequence[str]) -> bool:
        """Whether every group of the shown keys has each combination of the hidden keys equally often; never if the arm
        is hidden, because arms are different questions."""
        if "arm" in hidden or set(hidden) & set(self.sampled):
            return False
        groups = self._numbers([key for key in shown if key is not None])
        counts = pd.crosstab(groups, self._numbers(list(hidden)))
        return bool(counts.to_numpy().min() == counts.to_numpy().max())

    def with_key(self, key: str, column: pd.Series, instead_of: Iterable[str]) -> "Design":
        """The design with one new key that replaces others, over the trials of `column`."""
        others = tuple(one for one in self.keys if one not in set(instead_of))
        trials = self.trials.loc[column.index].assign(**{key: column})
        return Design(trials, (*others, key), self.within, self.by_arm, self.sampled)

    def groups(self) -> pd.Series:
        """The number of each trial's group, within which trials differ only by seed."""
        return self._numbers(list(self.keys))

    def _numbers(self, keys: list[str]) -> pd.Series:
        """The group number of each trial by these keys; keys that do not vary are ignored."""
        keys = [key for key in keys if key in self.trials]
        if not keys:
            return pd.Series(0, index=self.trials.index)
        found: pd.Series = self.trials.groupby(keys, dropna=False, sort=False).ngroup()
        return found


def _most(column: pd.Series, groups: pd.Series) -> int:
    return int(column.groupby(groups, sort=False).nunique(dropna=False).max())


def design_of(trials: pd.DataFrame, varying: Iterable[str]) -> Design:
    """From one row per trial (`trial_id`, `arm`, `seed`, config keys) and the config keys that differ."""
    found = [key for key in varying if swept(trials, key)]
    numbers = {key for key in found if is_number(trials[key])}
    frame = trials.set_index("trial_id")[["arm", "seed", *found]]
    frame = frame.assign(**{key: filled(frame[key]) for key in ("arm", *found)})
    within = {key: tuple(arm for arm, some in frame.groupby("arm", sort=False) if varies(some, key)) for key in found}
    sampled = _sampled(frame, [key for key in found if within[key]], numbers)
    keys = _identifying(frame, found, sampled)
    by_arm = tuple(key for key in found if not within[key])
    return Design(frame, keys, {key: arms for key, arms in within.items() if arms}, by_arm, sampled)


def _sampled(frame: pd.DataFrame, keys: list[str], numbers: set[str]) -> tuple[str, ...]:
    """Numbers with nearly as many values as there are points; a single such number is just a fine grid."""
    points = frame.groupby(["arm", *keys], sort=False).ngroups if keys else 0
    counts = {key: frame[key][frame[key] != MISSING].nunique() for key in keys if key in numbers}
    found = tuple(key for key, count in counts.items() if count >= FEWEST_DRAWN and count > points / 2)
    return found if len(found) > 1 else ()


def _identifying(frame: pd.DataFrame, found: list[str], sampled: tuple[str, ...]) -> tuple[str, ...]:
    """Arm, names, numbers, sampled numbers, each only if it is not redundant with the earlier ones."""
    kept = ["arm"] if varies(frame, "arm") else []
    for key in sorted(found, key=lambda key: (key in sampled, not key.endswith(".name"))):
        groups = frame.groupby(kept, sort=False).ngroup() if kept else pd.Series(0, index=frame.index)
        if key in sampled or _most(frame[key], groups) > 1:
            kept.append(key)
    return tuple(sorted(kept, key=["arm", *found].index))


# ---- which key goes where


@dataclass(frozen=True)
class Layout:
    """Where a figure shows each key. A mark (a mean, a line, a box) summarises trials with equal x, series and panels.
    If such trials still differ in the keys named by `mixed`, every trial is drawn by itself."""

    x: str | None
    series: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    averaged: tuple[str, ...] = ()
    """Keys over which a mean is a marginal: a full crossing, each value equally often."""
    mixed: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.x, *self.series, *self.panels)))


def lay_out(
    design: Design, x: str | None, by: str | None = None, most_series: int = MOST_SERIES, most_panels: int = MOST_PANELS
) -> Layout:
    """Every key that would be mixed becomes part of the series or gets panels. A given `by` requests its marginal,
    which is drawn if the design is a full crossing."""
    series = (by,) if by is not None and by != x else ()
    hidden = design.hidden([x, *series])
    if not hidden:
        return Layout(x, series)
    if series and design.is_crossing([x, *series], hidden):
        return Layout(x, series, averaged=tuple(hidden))
    for panels in _choices(design, hidden, most_panels):
        others = tuple(key for key in hidden if key not in panels)
        if not set(others) & set(design.sampled) and design.count((*series, *others)) <= most_series:
            return Layout(x, (*series, *others), panels)
    return Layout(x, series, mixed=tuple(hidden))


def _choices(design: Design, hidden: Sequence[str], most: int) -> Iterator[tuple[str, ...]]:
    """Keys that may become panels, those with the fewest panels first."""
    usable = [key for key in hidden if key not in design.sampled]
    counts = {keys: design.count(keys) for size in range(len(usable) + 1) for keys in combinations(usable, size)}
    return iter(sorted((keys for keys in counts if counts[keys] <= most), key=lambda keys: (counts[keys], len(keys))))

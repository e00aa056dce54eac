"""The table that analyses read: one row per trained model, with its data set, method, strength, seed and scores."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from disentune.errors import ConfigError, did_you_mean, unknown

DATASET, METHOD, STRENGTH, SEED = "dataset", "method", "strength", "seed"
KEYS = (DATASET, METHOD, STRENGTH, SEED)
SETTING = [METHOD, STRENGTH]
STUDIED = ("beta_vae_score", "factor_vae_score", "mig", "dci_disentanglement", "modularity", "sap")
"""The six scores of Locatello et al., ICML 2019; an analysis uses those that a table has, or else all scores it
finds."""
LABEL_FREE = (
    "reconstruction", "reconstruction_sampled", "recon_sum", "kl_sum", "elbo", "gaussian_total_correlation",
    "gaussian_total_correlation_sampled", "udr", "udr_spearman",
)  # fmt: skip
"""Numbers that need no labels, so that a model can be chosen by them without labels."""
DOWNSTREAM = "downstream_"
"""Prefix of the accuracies of a task that is learnt from the codes."""
TOTAL_CORRELATIONS = {"mean": "gaussian_total_correlation", "sampled": "gaussian_total_correlation_sampled"}


def renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """The table with its columns renamed by `columns`, {"dataset": "their name", ...}, to our names."""
    for key, column in columns.items():
        if key not in KEYS:
            raise ConfigError(f"--columns {key}={column}: {unknown('key', key, KEYS)}")
        if column not in table:
            raise ConfigError(f"--columns {key}={column}: {unknown('column', column, map(str, table.columns))}")
    taken = [key for key in columns if key in table and columns[key] != key]
    return table.drop(columns=taken).rename(columns={column: key for key, column in columns.items()})


def with_keys(frame: pd.DataFrame, keys: Iterable[str]) -> pd.DataFrame:
    """The same frame; raises ConfigError unless it has these columns with a value in every row."""
    for key in keys:
        if key not in frame:
            raise ConfigError(
                f"the table has no column '{key}'; name the column with --columns {key}=COLUMN"
                f"{did_you_mean(key, map(str, frame.columns))}"
            )
        if frame[key].isna().any():
            raise ConfigError(f"column '{key}' is empty in {frame[key].isna().sum()} of {len(frame)} rows")
    if frame.empty:
        raise ConfigError("the table has no rows")
    return frame


def with_settings(frame: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Like `with_keys`, but also requires one row per data set, method, strength and seed."""
    frame = with_keys(frame, (DATASET, *SETTING, *keys))
    if SEED in frame and (twice := frame.duplicated([*KEYS])).any():
        row = frame[twice].iloc[0]
        named = ", ".join(f"{key} {row[key]}" for key in KEYS)
        raise ConfigError(
            f"{twice.sum()} rows repeat the keys of an earlier row, the first with {named}; keep one of each"
        )
    return frame


def metrics_of(frame: pd.DataFrame, asked: Sequence[str] | None = None) -> list[str]:
    """The scores to analyse: the requested ones, those of the study, or else every remaining numeric column.

    Raises ConfigError if one of them is missing, or is not finite in some row.
    """
    found = list(asked or (key for key in STUDIED if key in frame)) or _scores(frame)
    if not found:
        raise ConfigError("the table has no column of scores; name some with --metrics")
    for key in found:
        _assert_score(frame, key)
    return found


def left_out(frame: pd.DataFrame) -> list[str]:
    """Columns that look like scores, which `metrics_of` leaves out because the table has scores of the study."""
    return [key for key in _scores(frame) if key not in STUDIED] if any(key in frame for key in STUDIED) else []


def _scores(frame: pd.DataFrame) -> list[str]:
    others = {*KEYS, *LABEL_FREE}
    return [key for key in frame if key not in others and _is_score(key, frame) and is_number(frame[key])]


def _is_score(key: str, frame: pd.DataFrame) -> bool:
    """Whether a column can be a score: not a loss (in rows twice, as `kl` and `kl_sum`), running maximum or config
    key."""
    is_loss = key in ("loss", "recon") or key.endswith("_sum") or f"{key}_sum" in frame or key.startswith("watch_")
    return not (is_loss or key.startswith(DOWNSTREAM) or key.endswith("_max") or "." in key)


def is_number(column: pd.Series) -> bool:
    """Whether a column has numbers, and not text or truth values."""
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _assert_score(frame: pd.DataFrame, key: str) -> None:
    if key not in frame:
        known = (str(name) for name in frame if name not in KEYS and is_number(frame[name]))
        raise ConfigError(unknown("metric", key, known))
    _assert_number(frame, key)
    missing = int((~np.isfinite(frame[key].to_numpy(dtype=float))).sum())
    if missing:
        what = (
            "no row has a finite number" if missing == len(frame) else f"{missing} of {len(frame)} rows are not finite"
        )
        raise ConfigError(f"{key}: {what}; remove these rows, or name other scores with --metrics")


def _assert_number(frame: pd.DataFrame, key: str) -> None:
    if not is_number(frame[key]):
        raise ConfigError(f"{key}: must be a numeric column, but has type {frame[key].dtype}")


def present(frame: pd.DataFrame, keys: Iterable[str]) -> list[str]:
    """The keys that are columns with a finite number. Raises ConfigError if one of them is a column of text."""
    found = [key for key in keys if key in frame]
    for key in found:
        _assert_number(frame, key)
    return [key for key in found if np.isfinite(frame[key].to_numpy(dtype=float)).any()]

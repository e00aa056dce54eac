"""Do good settings transfer? Locatello et al., ICML 2019, section 5.4: ranks of settings on two data sets."""

from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from disentune.analysis.correlation import FEWEST, spearman
from disentune.analysis.scores import DATASET, SETTING, metrics_of, with_settings
from disentune.errors import ConfigError


def transfer(frame: pd.DataFrame, metrics: Sequence[str] | None = None) -> pd.DataFrame:
    """`metric`, `dataset`, `other`, `value`, `n`: Spearman's correlation of the settings' mean scores on two data sets.

    `n` counts the settings that both data sets have.
    """
    frame, metrics = with_settings(frame), metrics_of(frame, metrics)
    names = sorted(frame[DATASET].unique())
    if len(names) < 2:
        raise ConfigError(f"transfer compares data sets, but all trials have the same one: {names[0]}")
    means = frame.groupby([DATASET, *SETTING])[metrics].mean()
    rows = []
    for dataset, other in combinations(names, 2):
        both = means.loc[dataset].join(means.loc[other], how="inner", suffixes=("", "_other"))
        if len(both) < FEWEST:
            raise ConfigError(
                f"data sets {dataset} and {other} must have {FEWEST} settings or more in common, but have {len(both)}"
            )
        for metric in metrics:
            value = spearman(both[metric].to_numpy(), both[f"{metric}_other"].to_numpy())
            rows.append({"metric": metric, "dataset": dataset, "other": other, "value": value, "n": len(both)})
    return pd.DataFrame(rows).sort_values(["metric", "dataset", "other"], kind="stable", ignore_index=True)

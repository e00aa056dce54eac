"""`disentune analyse`: runs and anybody's tables of scores."""

import json
import resource
import time

import numpy as np
import pytest

from disentune.analysis import ANALYSES, variance_explained
from study_examples import study


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study(datasets=3, setting=1.0).rename(columns={"dataset": "data"}).to_csv("scores.csv", index=False)
    return study(datasets=3, setting=1.0)


def test_a_table_with_other_names_of_columns(disentune, table):
    arguments = ("analyse", "scores.csv", "--columns", "dataset=data", "--analysis", "variance_explained", "--json")
    code, out, _ = disentune(*arguments)
    assert code == 0
    found = json.loads(out)
    assert list(found) == ["analysis", "rows"]
    expected = variance_explained(table)
    assert [row["value"] for row in found["rows"]] == pytest.approx(expected["value"].tolist())
    assert list(found["rows"][0]) == ["dataset", "metric", "grouping", "value", "adjusted", "low", "high", "n"]


def test_without_a_name_all_analyses_that_the_scores_allow(disentune, table):
    code, out, err = disentune("analyse", "scores.csv", "--columns", "dataset=data")
    assert code == 0
    for name in ("agreement", "variance_explained", "transfer", "selection"):
        assert f"{name}: " in out
    assert "no downstream: the table has no column that begins with downstream_" in " ".join(err.split())
    found = json.loads(disentune("analyse", "scores.csv", "--columns", "dataset=data", "--json")[1])
    assert [one["analysis"] for one in found] == ["agreement", "variance_explained", "transfer", "selection"]


def test_scores_that_are_not_analysed_are_named(disentune, table):
    table.assign(mine=table["mig"], dci=table["sap"], kl_sum=1.0).to_csv("more.csv", index=False)
    code, _, err = disentune("analyse", "more.csv", "--analysis", "variance_explained")
    assert code == 0
    assert "note: not analysed: mine, dci; name all scores with --metrics" in " ".join(err.split())
    assert "note" not in disentune("analyse", "more.csv", "--analysis", "transfer", "--metrics", "mig,mine")[2]


def test_a_run_is_analysed_by_its_framework_and_strength(disentune, finished):
    code, out, _ = disentune("analyse", "tiny", "--analysis", "variance_explained", "--metrics", "mig", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    assert {row["grouping"] for row in rows} == {"method", "method*strength"}
    assert {row["n"] for row in rows} == {6}
    assert {row["dataset"].split(" ")[0] for row in rows} == {"xysquares"}
    assert len({row["dataset"] for row in rows}) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scores.csv"], "the table has no column 'dataset'; name the column with --columns"),
        (["scores.csv", "--columns", "dataset"], "must look like dataset=A,method=B"),
        (["scores.csv", "--columns", "dataset=date"], "unknown column 'date'. Did you mean 'data'?"),
        (["scores.csv", "--columns", "dataset=data", "--analysis", "variance"], "unknown analysis 'variance'"),
        (
            ["scores.csv", "--columns", "dataset=data", "--metrics", "mag"],
            "'mag'. Did you mean 'mig'? Known: mig, modularity, sap",
        ),
        (["nothing.csv"], "does not exist"),
        (["broken.parquet"], "cannot be read as parquet"),
        (["empty.csv"], "cannot be read as csv"),
        (["nan.csv", "--analysis", "agreement"], "mig: 1 of 120 rows are not finite"),
    ],
)
def test_wrong_input_gets_one_message(disentune, table, tmp_path, arguments, message):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty.csv").write_text("")
    study().assign(mig=[np.nan] + [1.0] * 119).to_csv("nan.csv", index=False)
    code, out, err = disentune("analyse", *arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


@pytest.mark.long
def test_the_whole_study_is_analysed_in_a_minute_and_2_gb():
    """12,600 trials, processor time and not the clock's, so that a busy machine does not matter."""
    six = ["beta_vae_score", "factor_vae_score", "mig", "dci_disentanglement", "modularity", "sap"]
    more = ["downstream_gbt_100", "downstream_gbt_10000", "reconstruction", "kl_sum", "recon_sum"]
    codes = ["gaussian_total_correlation", "gaussian_total_correlation_sampled"]
    frame = study(7, 6, 6, 50, setting=1.0, metrics=[*six, *more, *codes])
    before = time.process_time()
    rows = {name: analysis.rows(frame, None) for name, analysis in ANALYSES.items()}
    assert time.process_time() - before < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2e6  # kB
    assert {name: len(found) for name, found in rows.items()} == {
        "total_correlation": 7 * 36 * 2,
        "agreement": 7 * 15,
        "variance_explained": 7 * 6 * 2,
        "transfer": 6 * 21,
        "selection": 4,
        "downstream": 7 * 2 + 7 * 6 * 2,
        "unsupervised_selection": 7 * 6 * 6,
    }

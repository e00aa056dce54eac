"""The quick-start at reduced steps, as a user runs it: plan, run, look, run again."""

from pathlib import Path

import pandas as pd
import pytest

QUICKSTART = Path(__file__).parents[2] / "sweeps" / "quickstart.yaml"
SHORT = ["--set", "training.steps=20", "--set", "evaluation.every=10", "--set", "evaluation.table=500",
         "--set", "seeds=2"]  # fmt: skip


@pytest.mark.ray
@pytest.mark.long
def test_the_quickstart_runs_from_plan_to_figure_and_once(commands, tmp_path):
    code, output = commands.run("run", str(QUICKSTART), *SHORT)
    assert code == 0, output
    assert "0 done, 0 to continue, 12 new" in output
    assert "12 done" in output
    for arm in ("overlapping", "adversarial", "rescued"):
        assert arm in output
    assert "Configuration for experiment" not in output, "Ray's own banner is noise"

    run = tmp_path / "runs" / "quickstart" / "main"
    assert (run / "report" / "summary.png").read_bytes().startswith(b"\x89PNG")
    rows = pd.read_parquet(run / "results.parquet")
    assert len(rows) == 12 * 2
    assert rows["mig"].notna().all()
    trials = commands.json("results", "quickstart")
    assert [trial["status"] for trial in trials] == ["done"] * 12

    table = (run / "results.parquet").read_bytes()
    code, output = commands.run("run", str(QUICKSTART), *SHORT)
    assert code == 0, output
    assert "12 done, 0 to continue, 0 new" in output
    assert (run / "results.parquet").read_bytes() == table


@pytest.mark.ray
@pytest.mark.long
def test_a_trial_with_more_resources_than_the_machine_is_refused(commands):
    code, output = commands.run("run", str(QUICKSTART), *SHORT, "--set", "resources.cpu=1000")
    assert code == 2, output
    assert "a trial needs 1000, but this machine has" in output
    assert not (commands.folder / "runs" / "quickstart" / "main" / "trials").exists()


@pytest.mark.ray
@pytest.mark.long
def test_an_address_without_a_cluster_is_refused(commands):
    code, output = commands.run("run", str(QUICKSTART), *SHORT, "--address", "127.0.0.1:1")
    assert code == 2, output
    assert "no Ray cluster answers there" in output


@pytest.mark.ray
@pytest.mark.long
def test_a_plugin_in_the_current_folder_trains_in_the_workers(commands, tmp_path):
    (tmp_path / "my_vae.py").write_text(
        '"""My VAE: no paper yet."""\n'
        "from disentune.frameworks import beta_vae\n"
        "from disentune.plugin import Framework\n"
        "FRAMEWORK = Framework(name='mine', params=beta_vae.Params, loss=beta_vae.loss)\n"
    )
    sweep = tmp_path / "mine.yaml"
    sweep.write_text(QUICKSTART.read_text().replace("[ada_gvae, beta_vae]", "['my_vae:FRAMEWORK']"))
    commands.environment.pop("PYTHONPATH", None)
    code, output = commands.run("run", str(sweep), *SHORT, "--limit", "2")
    assert code == 0, output
    assert {trial["config"]["framework"]["name"] for trial in commands.json("results", "quickstart")} == {
        "my_vae:FRAMEWORK"
    }

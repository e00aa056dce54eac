"""A study is sent with the sweeps that it needs, and a supervisor counts the rows of every stage."""

from pathlib import Path

import pytest

from disentune.cluster.submission import Job, assert_plugins_sent, submit
from disentune.cluster.supervisor import rows_of
from disentune.errors import ConfigError
from disentune.runs.ledger import Run
from disentune.runs.stages import chain
from disentune.spec.space import read_file
from stage_examples import DONORS, write_study


class Client:
    """Keeps the files that are sent."""

    def __init__(self):
        self.files = {}

    def list_jobs(self):
        return []

    def submit_job(self, runtime_env, submission_id, **job):
        folder = Path(runtime_env["working_dir"])
        self.files = {path.name: path.read_text() for path in folder.iterdir()}
        return submission_id


def test_one_file_is_sent_that_has_every_stage(tmp_path):
    sweep = read_file(write_study(tmp_path))
    client = Client()
    submit(client, Job(sweep, "main", "/shared"))
    ((_, text),) = client.files.items()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "sent.yaml").write_text(text)
    there = read_file(tmp_path / "elsewhere" / "sent.yaml")
    assert there.resolved() == sweep.resolved()
    ids = [[point.config.id for stage in chain(one) for point in stage.asked.points] for one in (there, sweep)]
    assert ids[0] == ids[1]


def test_a_plugin_of_a_needed_sweep_must_be_sent_too(tmp_path, monkeypatch):
    (tmp_path / "staged_vae.py").write_text(
        "from disentune.frameworks import beta_vae\nfrom disentune.plugin import Framework\n"
        "FRAMEWORK = Framework(name='mine', params=beta_vae.Params, loss=beta_vae.loss)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    donors = DONORS.replace("name: beta_vae", "name: 'staged_vae:FRAMEWORK'")
    sweep = read_file(write_study(tmp_path, donors=donors))
    with pytest.raises(ConfigError, match="uses 'staged_vae:FRAMEWORK' from"):
        assert_plugins_sent(sweep, None)
    assert_plugins_sent(sweep, tmp_path)


def test_rows_of_every_stage_count_as_progress(tmp_path):
    path = write_study(tmp_path)
    sweep, storage = read_file(path), ["--storage", str(tmp_path / "runs")]
    assert rows_of(["run", str(path), *storage]) == 0
    study = Run(tmp_path / "runs" / "study" / "main")
    with study.locked():
        study.record(sweep)
        study.record_stages(sweep, {})
    for stage, name in enumerate(("donors", "study-manipulators", "study"), start=1):
        point = chain(sweep)[0].asked.points[0]
        folder = Run(tmp_path / "runs" / name / "main").trial(point.config.id)
        folder.create(point.config, point.arms)
        folder.append_row({"step": 3, "metrics": {"loss": 1.0}})
        assert rows_of(["run", str(path), *storage]) == stage
        assert rows_of(["resume", "study", *storage]) == stage

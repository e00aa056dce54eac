"""The page of a trial."""

import io

import numpy as np
import pytest
from PIL import Image

from disentune.learn.pictures import Pictures, sheets, to_bytes
from processes import little_memory
from run_examples import quick_trial

PICTURES = Pictures(
    originals=np.zeros((1, 8, 8, 1), np.uint8), reconstructions=np.ones((1, 8, 8, 1), np.uint8),
    traversals=np.zeros((1, 8, 8, 8, 1), np.uint8), latents=np.array([0]), kl=np.array([1.0], np.float32),
    spans=np.array([[0, 1]], np.float32), distances={},
)  # fmt: skip


@pytest.fixture
def asked(make_run, tmp_path, dashboard):
    maker = make_run()
    id = quick_trial(maker, [{"step": 50, "mig": 0.5, "kl_sum": 3.0}], status="failed", cause="a cause\nin two lines")
    return dashboard(tmp_path / "runs"), maker.run.trial(id)


def test_it_has_the_whole_config_every_number_and_the_errors(asked):
    client, folder = asked
    folder.add_error("Traceback: deep inside")
    found = client.get("trial", run="demo/main", id=folder.id)
    assert found["config"]["framework.beta"] == 0.001
    assert {one["key"]: (one["value"], one["step"]) for one in found["metrics"]} == {
        "mig": (0.5, 50),
        "kl_sum": (3, 50),
    }
    assert found["errors"] == "Traceback: deep inside"
    assert found["status"]["cause"] == "a cause\nin two lines"
    assert "no checkpoint" in found["no_sliders"]


def test_pictures_are_those_of_the_evaluation(asked):
    client, folder = asked
    folder.write_pictures(50, to_bytes(PICTURES))
    found = client.get("trial", run="demo/main", id=folder.id)["pictures"]
    assert found["steps"] == [50]
    assert found["sheets"] == ["reconstructions", "traversals"]
    answer = client.ask("/api/picture", {"run": "demo/main", "id": folder.id, "step": 50, "sheet": "traversals"})
    shown = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert (shown == sheets(PICTURES)["traversals"]).all()


def test_pictures_that_are_missing_or_damaged_give_a_sentence(asked):
    client, folder = asked
    params = {"run": "demo/main", "id": folder.id, "step": 50, "sheet": "traversals"}
    assert client.refused("picture", **params) == (404, f"trial {folder.id} has no pictures of step 50")
    folder.write_pictures(50, b"PK no pictures")
    assert client.refused("picture", **params)[0] == 400
    assert "cannot be read" in client.get("trial", run="demo/main", id=folder.id)["pictures"]["failure"]
    folder.write_pictures(50, to_bytes(PICTURES))
    assert client.refused("picture", **params | {"sheet": "nothing"})[0] == 404


def test_rows_that_are_damaged_are_named_and_the_rest_is_shown(asked):
    client, folder = asked
    folder.rows_path.write_text("{}\n")
    found = client.get("trial", run="demo/main", id=folder.id)
    assert "is damaged" in found["metrics"][0]["key"]
    assert found["config"]


@pytest.mark.parametrize(
    "name", ["errors.log", "rows.jsonl", "status.json", "config.json", "end.json", "pictures/step-0000000050.npz",
             "checkpoints/step-0000000050.ckpt"],
)  # fmt: skip
def test_a_file_of_many_gigabytes_takes_no_memory(asked, name):
    client, folder = asked
    path = folder.path / name
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(40 * 10**9)  # takes no disk
    with little_memory(4 * 10**9):
        answer = client.ask("/api/trial", {"run": "demo/main", "id": folder.id})
        listed = client.get("runs")
    if answer.status_code != 200:
        assert str(path) in answer.json()["error"]
        assert "larger than 1 GB" in answer.json()["error"]
    assert [run["name"] for run in listed["runs"]] == ["demo/main"]

"""disentune data, and sweeps on data sets that must be prepared."""

import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bad_server import Reply, bad_server
from disentune.data import DATASETS, shapes3d
from disentune.data.prepared import download
from disentune.data.prepared.store import prepared_sources
from disentune.data.prepared.stored import contents
from disentune.files import documents
from disentune.plugin import File, Statistics
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from disentune.spec import space
from sprite_files import FILES

OWN = ["--set", "path=mine.npz", "--set", "factor_names=[colour, angle]", "--set", "factor_sizes=[3, 4]",
       "--set", "image_shape=[1, 8, 8]"]  # fmt: skip
IMAGES = np.random.default_rng(0).integers(0, 256, size=(12, 8, 8), dtype=np.uint8)

SWEEP = """
trial:
  dataset:
    name: grid_file
    path: mine.npz
    image_shape: [1, 8, 8]
    factor_names: [colour, angle]
    factor_sizes: [3, 4]
  model: {name: mlp, latents: 2, width: 4}
  framework: {name: beta_vae, beta: 1}
  recon: {name: mse}
  training: {steps: 3, batch_size: 4, learning_rate: 1e-3, log_every: 1}
  loss_scale: sum
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "data root"
    folder.mkdir()
    monkeypatch.setenv("DISENTUNE_DATA", str(folder))
    np.savez(folder / "mine.npz", images=IMAGES)
    return folder


@pytest.fixture
def sweep(tmp_path):
    (tmp_path / "own.yaml").write_text(SWEEP)
    return "own.yaml"


def prepared(root: Path) -> Path:
    """The one folder of a prepared array."""
    (path,) = root.glob("*/images.npy")
    return path.parent


# ---- list


def test_list_names_every_data_set_and_its_state(disentune, root):
    code, printed, _ = disentune("data", "list", "--json")
    listing = {one["name"]: one for one in json.loads(printed)}
    assert code == 0
    assert sorted(listing) == DATASETS.names()
    assert listing["xysquares"]["images"] == 8**6
    assert listing["xysquares"]["state"] == "needs no file"
    assert listing["dsprites"]["state"] == "not prepared: disentune data prepare dsprites"
    assert listing["grid_file"]["state"] == "made from your own file"


def test_list_without_a_root_says_so(disentune, monkeypatch):
    monkeypatch.delenv("DISENTUNE_DATA", raising=False)
    _, printed, _ = disentune("data", "list")
    assert re.search(r"dsprites +737,280 +1 x 64 x 64 .*unknown: DISENTUNE_DATA is not set", printed)


# ---- prepare


def test_prepare_makes_the_array_and_says_what_it_holds(disentune, root):
    code, printed, complained = disentune("data", "prepare", "grid_file", *OWN)
    about = json.loads((prepared(root) / "about.json").read_text())
    assert code == 0
    assert "prepared: 12 images of 1 x 8 x 8, 896 B" in printed
    assert about["sha256"] in printed
    assert f"mean {IMAGES.mean() / 255:.6f}" in printed
    assert "preparing grid_file" in complained


def test_preparing_twice_does_nothing_unless_asked(disentune, root):
    disentune("data", "prepare", "grid_file", *OWN)
    before = (prepared(root) / "images.npy").stat().st_ino
    _, printed, _ = disentune("data", "prepare", "grid_file", *OWN)
    assert "was already prepared" in printed
    assert (prepared(root) / "images.npy").stat().st_ino == before
    _, printed, _ = disentune("data", "prepare", "grid_file", *OWN, "--again")
    assert "was already prepared" not in printed
    assert (prepared(root) / "images.npy").stat().st_ino != before


def test_root_on_the_command_line_wins(disentune, root, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    np.savez(other / "mine.npz", images=IMAGES)
    disentune("data", "prepare", "grid_file", *OWN, "--root", "other")
    assert prepared(other)
    assert not list(root.glob("*/images.npy"))


def test_an_empty_root_is_not_the_folder_one_is_in(disentune, root):
    code, _, complained = disentune("data", "prepare", "grid_file", *OWN, "--root", "")
    assert (code, complained) == (2, "--root: must be a folder, but is empty\n")


def test_preparing_again_does_not_vouch_for_altered_images(disentune, root):
    disentune("data", "prepare", "grid_file", *OWN)
    path = prepared(root) / "images.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    code, _, complained = disentune("data", "prepare", "grid_file", *OWN)
    assert code == 2
    assert f"{path} was altered" in complained


def test_a_file_that_is_not_read_is_mentioned(disentune, root):
    disentune("data", "prepare", "grid_file", *OWN)
    _, printed, _ = disentune("data", "prepare", "grid_file", *OWN, "--from", root / "mine.npz")
    assert "mine.npz was not read; use --again to prepare the array from it" in printed


def test_contents_that_are_not_published_stay_marked(disentune, root, monkeypatch):
    FILES["shapes3d"](root, monkeypatch)
    monkeypatch.setattr(shapes3d, "PUBLISHED", Statistics((0.9,) * 3, (0.1,) * 3))
    code, _, complained = disentune("data", "prepare", "shapes3d")
    assert (code, "is not the published data set" in complained) == (2, True)
    assert "(not as published)" in disentune("data", "prepare", "shapes3d", "--accept")[1]
    assert re.search(r"shapes3d .*prepared, .*not the published contents", disentune("data", "list")[1])


def test_a_touched_file_with_the_same_contents_is_still_the_same(disentune, root, sweep):
    disentune("data", "prepare", "grid_file", *OWN)
    os.utime(root / "mine.npz", (1, 1))
    assert disentune("plan", sweep)[0] == 0
    np.savez(root / "mine.npz", images=IMAGES[::-1])
    code, _, complained = disentune("plan", sweep)
    assert code == 2
    assert "mine.npz has changed since it was prepared" in complained


def test_a_manipulated_data_set_without_its_donors_cannot_be_prepared(disentune, root):
    options = ["base=xysquares", "donors=donors", "epsilon=0.1", "steps=10"]
    code, _, complained = disentune("data", "prepare", "manipulated", *(w for one in options for w in ("--set", one)))
    assert code == 2
    assert "is made from the trained models of 'donors', which are not known yet; name their sweep" in complained


def test_a_drawn_data_set_needs_no_preparation(disentune, root):
    code, printed, _ = disentune("data", "prepare", "xysquares")
    assert (code, printed) == (0, "'xysquares' is drawn on the fly; there is nothing to prepare\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dsprite"], "unknown data set 'dsprite'. Did you mean 'dsprites'?"),
        (["smallnorb", "--set", "split=testing"], "must be one of 'both' or 'training', got 'testing'"),
        (["smallnorb", "--set", "split"], "--set split: must be key=value, for example --set split=training"),
        (["dsprites", "--from", "nowhere.npz"], "--from nowhere.npz: does not exist"),
    ],
)
def test_wrong_input_is_one_message(disentune, root, arguments, message):
    code, _, complained = disentune("data", "prepare", *arguments)
    assert code == 2
    assert message in complained


def test_without_a_root_nothing_is_guessed(disentune, monkeypatch):
    monkeypatch.delenv("DISENTUNE_DATA", raising=False)
    code, _, complained = disentune("data", "prepare", "dsprites")
    assert code == 2
    assert complained.startswith("no data root is set")


# ---- prepare, from the network


@pytest.fixture
def public(root, monkeypatch):
    """3D Shapes in miniature, on a server that drops the connection half-way before it gives the rest."""
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(download, "WAITS_S", (0.0,) * 3)
    FILES["shapes3d"](root, monkeypatch)
    path = root / "3dshapes.h5"
    content = path.read_bytes()
    path.unlink()
    with bad_server() as server:
        url = server.serves("/3dshapes.h5", Reply(content, stop=len(content) // 2, how="reset"), Reply(content))
        wrong = server.serves("/gone.h5", Reply(status=404))
        file = File("3dshapes.h5", urls=(wrong, url), md5=hashlib.md5(content).hexdigest())
        monkeypatch.setattr(shapes3d, "FILE", file)
        yield server


def test_a_public_file_becomes_an_array_through_dead_mirrors_and_broken_connections(disentune, root, public):
    code, printed, complained = disentune("data", "prepare", "shapes3d")
    assert code == 0, complained
    assert "downloading 3dshapes.h5" in complained
    assert "shapes3d prepared" in printed
    assert public.asked("Range")[2].startswith("bytes=")
    assert not [path for path in (root / "downloads").iterdir() if not path.name.startswith(".")]
    assert "sound" in disentune("data", "verify", "shapes3d")[1]


def test_when_no_mirror_has_the_file_the_message_says_what_to_do(disentune, root, public, monkeypatch):
    monkeypatch.setattr(shapes3d, "FILE", replace(shapes3d.FILE, urls=shapes3d.FILE.urls[:1]))
    code, _, complained = disentune("data", "prepare", "shapes3d")
    assert code == 2
    assert "gone.h5: answers 404 Not Found" in complained
    assert "download 3dshapes.h5 by hand, then run: disentune data prepare shapes3d --from FILE" in complained


# ---- verify


def test_verify_finds_what_was_altered(disentune, root):
    disentune("data", "prepare", "grid_file", *OWN)
    code, printed, _ = disentune("data", "verify")
    assert (code, "sound" in printed) == (0, True)
    path = prepared(root) / "images.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    code, printed, _ = disentune("data", "verify", "--json")
    (outcome,) = json.loads(printed).values()
    assert code == 1
    assert not outcome["sound"]
    assert str(path) in outcome["reason"]
    assert "disentune data prepare grid_file" in outcome["reason"]


def test_verify_one_that_is_not_prepared(disentune, root):
    code, printed, _ = disentune("data", "verify", "dsprites")
    assert code == 1
    assert "not prepared" in printed
    assert "disentune data prepare dsprites" in printed


def test_verify_an_empty_root(disentune, root):
    assert disentune("data", "verify")[:2] == (0, f"no data set is prepared in {os.environ['DISENTUNE_DATA']}\n")


# ---- sweeps


def test_a_plan_says_what_is_not_prepared(disentune, root, sweep):
    code, printed, _ = disentune("plan", sweep)
    assert code == 0
    assert re.search(
        r"note: grid_file_\w+ is not prepared; a run prepares it first\. To do it now: disentune data", printed
    )
    disentune("data", "prepare", "grid_file", *OWN)
    assert "note:" not in disentune("plan", sweep)[1]


def test_a_probe_needs_the_data(disentune, root, sweep):
    code, _, complained = disentune("plan", sweep, "--probe")
    assert code == 2
    assert "--probe: the data must be prepared first: disentune data prepare grid_file" in complained
    disentune("data", "prepare", "grid_file", *OWN)
    assert disentune("plan", sweep, "--probe")[0] == 0


def test_a_plan_without_a_root_is_refused(disentune, sweep, monkeypatch):
    monkeypatch.delenv("DISENTUNE_DATA", raising=False)
    code, _, complained = disentune("plan", sweep)
    assert code == 2
    assert complained.startswith("no data root is set")
    code, printed, _ = disentune("plan", sweep, "--json")
    assert code == 2
    found = json.loads(printed)
    assert found["problems"][0].startswith("no data root is set")
    assert found["trials"] == found["new"] > 0


def test_a_missing_file_is_reported_in_the_plan(disentune, root, sweep):
    (root / "mine.npz").unlink()
    code, _, complained = disentune("plan", sweep)
    assert code == 2
    assert "mine.npz exists; put the file in one of these places, or correct the path" in complained


def test_damaged_data_is_reported_in_the_plan(disentune, root, sweep):
    disentune("data", "prepare", "grid_file", *OWN)
    path = prepared(root) / "images.npy"
    path.write_bytes(path.read_bytes()[:-5])
    code, _, complained = disentune("plan", sweep)
    assert code == 2
    assert f"{path} must have 896 bytes, but has 891" in complained


def test_the_sweep_may_name_the_root_and_the_environment_wins(disentune, root, sweep, monkeypatch, tmp_path):
    empty = tmp_path / "empty"
    set_root = ("--set", f"data.root={empty}")
    disentune("data", "prepare", "grid_file", *OWN)
    assert "note:" not in disentune("plan", sweep, *set_root)[1]
    monkeypatch.setenv("DISENTUNE_DATA", "")
    empty.mkdir()
    np.savez(empty / "mine.npz", images=IMAGES)
    printed = disentune("plan", sweep, *set_root)[1]
    assert "is not prepared" in printed
    assert f"--root {empty}" in printed, "the command can be pasted where no root is set"


def test_a_relative_root_in_a_sweep_is_refused(disentune, root, sweep):
    code, _, complained = disentune("plan", sweep, "--set", "data.root=data")
    assert code == 2
    assert "data.root: must be a path that starts with / or ~, the same on every node, got 'data'" in complained


def test_a_table_never_mixes_trials_of_different_contents(disentune, root, sweep, tmp_path):
    """The user's file changes and is prepared again after a trial is done."""
    disentune("data", "prepare", "grid_file", *OWN)
    (source,) = prepared_sources().values()
    read = space.read(tmp_path / sweep)
    run = Run(tmp_path / "runs" / "own" / "main")
    run.path.mkdir(parents=True)
    run.record(read.sweep)
    (point,) = read.points
    trial = run.trial(point.config.id)
    trial.create(point.config, point.arms)
    for step in (1, 2, 3):
        trial.append_row({"step": step, "metrics": {"loss": 1.0}})
    trial.set_status(Status(state="done", step=3, contents=contents([source])))
    assert "1 done" in disentune("plan", sweep)[1]
    np.savez(root / "mine.npz", images=IMAGES[::-1])
    disentune("data", "prepare", "grid_file", *OWN, "--again")
    code, _, complained = disentune("plan", sweep, "--set", "seeds=2")
    assert code == 2
    assert f"trial {trial.id} was trained on other contents of 'grid_file'" in complained


def test_train_prepares_what_it_needs(disentune, root, sweep):
    code, printed, _ = disentune("train", sweep)
    assert code == 0
    assert len(re.findall(r"^step", printed, re.MULTILINE)) == 3
    assert prepared(root)


# ---- export


def read_back(section):
    """The images of the printed section, read by `grid_file`."""
    tree = documents.parse(section, "test").value["dataset"]
    dataset = DATASETS[tree.pop("name")]
    return dataset.open(dataset.params.model_validate(tree))


def test_an_exported_file_is_read_back_bit_by_bit(disentune, root, tmp_path):
    disentune("data", "prepare", "grid_file", *OWN)
    code, out, err = disentune("data", "export", "grid_file", "copy.h5", *OWN)
    assert code == 0, err
    assert f"wrote copy.h5: {len(IMAGES)} images" in out
    images = read_back(out.splitlines()[1])
    np.testing.assert_array_equal(images.images(np.arange(12)), IMAGES[:, None])
    assert images.factor_names == ("colour", "angle")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.h5", "data root"]


def test_a_drawn_data_set_in_colour_is_exported_too(disentune, root, tmp_path):
    options = ["--set", "grid_size=2", "--set", "image_size=8", "--set", "square_size=2", "--set", "spacing=3"]
    code, out, err = disentune("data", "export", "xysquares", "squares.h5", *options)
    assert code == 0, err
    original = DATASETS["xysquares"]
    params = original.params(grid_size=2, image_size=8, square_size=2, spacing=3)
    every = np.arange(2**6)
    expected = original.open(params).images(every)
    assert expected.shape == (64, 3, 8, 8)
    np.testing.assert_array_equal(read_back(out.splitlines()[1]).images(every), expected)


def test_an_array_is_exported_by_the_name_that_the_list_gives(disentune, root):
    disentune("data", "prepare", "grid_file", *OWN)
    (other,) = [one for one in json.loads(disentune("data", "list", "--json")[1]) if one["name"].startswith("grid_f")
                and one["images"]]  # fmt: skip
    assert (other["images"], other["shape"], other["factor_sizes"]) == (12, [1, 8, 8], [3, 4])
    assert other["state"].startswith("prepared")
    code, out, err = disentune("data", "export", other["name"], "again.h5")
    assert code == 0, err
    np.testing.assert_array_equal(read_back(out.splitlines()[1]).images(np.arange(12)), IMAGES[:, None])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["xysquare", "x.h5"], "unknown data set 'xysquare'. Did you mean 'xysquares'?"),
        (["grid_file", "x.npz", *OWN], "x.npz: must end with .h5 or .hdf5"),
        (["grid_file", "no/x.h5", *OWN], "no is not a folder; create it"),
        (["grid_file", "data root/there.h5", *OWN], "data root/there.h5 exists; remove it, or choose another name"),
        (["pinwheel", "x.h5"], "has no fixed images to export"),
    ],
)
def test_what_cannot_be_exported_is_one_message(disentune, root, arguments, message):
    (root / "there.h5").write_bytes(b"")
    code, _, err = disentune("data", "export", *arguments)
    assert code == 2
    assert message in err

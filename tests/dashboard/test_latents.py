"""Traversals: the model of the checkpoint, moved by hand."""

import shutil
import sys

import numpy as np
import pytest
import torch

from disentune.dashboard import latents
from disentune.errors import TrialError
from disentune.learn.pictures import pixels
from disentune.results.rescore import rebuilt
from disentune.runs.ledger import Run
from run_examples import forged, quick_trial

OWN = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"


@pytest.fixture(scope="module")
def tiny(trained_storage):
    return Run(trained_storage / "tiny" / "main")


@pytest.fixture(scope="module")
def model(tiny):
    return latents.Models().get(tiny, tiny.trials()[0])


def test_latents_are_ordered_by_their_kl_to_the_prior(tiny, model):
    trained = rebuilt(tiny.trials()[0]).trained
    trained.model.eval()
    with torch.no_grad():
        q = trained.model.encode(trained.images(np.arange(len(trained.grid))))
    mean, variance = q.mean.double(), q.logvar.double().exp()
    prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    kl = torch.distributions.kl_divergence(torch.distributions.Normal(mean, variance.sqrt()), prior).mean(dim=0)
    assert len(trained.grid) == 81  # fewer than the sample, so that both are over all images
    assert model.kl == pytest.approx(kl.numpy(), rel=1e-5)
    found = [latent["kl"] for latent in latents.described(model)["latents"]]
    assert found == sorted(found, reverse=True)


def test_an_image_is_chosen_by_its_factors_and_decoded_from_its_code(tiny, model):
    trained = rebuilt(tiny.trials()[0]).trained
    factors = [2, 0, 1, 2]
    index = trained.grid.index(np.array([factors]))
    image, code = latents.encoded(model, factors)
    assert (image == trained.images.data.images(index)[0].transpose(1, 2, 0)).all()
    trained.model.eval()
    with torch.no_grad():
        q = trained.model.encode(trained.images(index))
        expected = pixels(trained, trained.model.decode(q.mean))[0]
    assert code == pytest.approx(q.mean[0].tolist())
    assert (latents.shown(model, code)["image"] == expected).all()


def test_moving_a_latent_changes_the_decoded_image(model):
    code = latents.encoded(model, [0, 0, 0, 0])[1]
    first = latents.shown(model, code)["image"]
    code[model.order[0]] += 3.0
    assert (latents.shown(model, code)["image"] != first).any()


def test_the_nearest_image_is_that_of_all_pairs(model):
    every = latents._unit(model.trained, np.arange(len(model.trained.grid)))
    rng = np.random.default_rng(0)
    for _ in range(5):
        image = torch.from_numpy(rng.random((3, 8, 8), dtype=np.float32))
        errors = (every - image).square().flatten(1).mean(dim=1)
        index, error = latents.nearest(model, image)
        assert errors[index] == pytest.approx(float(errors.min()))
        assert error == pytest.approx(float(errors.min().sqrt()), rel=1e-5)


def test_of_a_sample_the_nearest_image_is_improved_factor_by_factor(model):
    """From afar a square that does not touch its place cannot be told from others, so one factor at a time differs."""
    few, grid = np.array([0]), model.trained.grid
    coarse = latents._coarse(model.trained, few)
    sampled = latents.Opened(**{**vars(model), "candidates": few, "coarse": coarse, "is_whole": False})
    for index in {int(index) for factor in range(4) for index in grid.around(few, factor)[0]}:
        image = latents._unit(model.trained, np.array([index]))[0]
        found, error = latents.nearest(sampled, image)
        assert error == 0
        assert (latents._unit(model.trained, np.array([found]))[0] == image).all()


def test_the_server_answers_with_images(trained_storage, tiny, dashboard):
    client, id = dashboard(trained_storage), tiny.trials()[0].id
    found = client.get("model", run="tiny/main", id=id)
    assert [one["size"] for one in found["factors"]] == [3, 3, 3, 3]
    encoded = client.get("encode", run="tiny/main", id=id, factors="0,1,2,0")
    assert encoded["image"].startswith("data:image/png;base64,")
    decoded = client.get("decode", run="tiny/main", id=id, z=",".join(map(str, encoded["z"])))
    assert set(decoded) == {"image", "nearest", "factors", "error"}


@pytest.mark.parametrize(
    ("name", "params"),
    [("decode", {"z": "1,2"}), ("decode", {"z": "x"}), ("decode", {"z": "nan,0,0"}), ("decode", {"z": "1e9,0,0"}),
     ("encode", {"factors": "9,0,0,0"}), ("encode", {"factors": "0"}), ("encode", {"factors": "nan"})],
)  # fmt: skip
def test_codes_and_factors_that_do_not_fit_are_refused(trained_storage, tiny, dashboard, name, params):
    status, sentence = dashboard(trained_storage).refused(name, run="tiny/main", id=tiny.trials()[0].id, **params)
    assert status == 400
    assert "bug" not in sentence


def test_a_trial_with_code_of_its_own_says_so_and_the_code_is_not_imported(
    make_run, tmp_path, dashboard, monkeypatch, trained_storage, tiny
):
    (tmp_path / "stranger.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    maker = make_run()
    own = quick_trial(maker, [{"step": 50, "mig": 0.5}])
    folder = forged(maker.run.trial(own), lambda tree: tree["framework"].update(name="stranger:FRAMEWORK"))
    shutil.copytree(tiny.trials()[0].checkpoints.folder, folder.checkpoints.folder)
    client = dashboard(tmp_path / "runs")
    client.until("run", lambda found: found["picture"], run="demo/main")
    found = client.get("trial", run="demo/main", id=folder.id)
    assert "runs no code that a run names" in found["no_sliders"]
    assert found["config"]["framework.name"] == "stranger:FRAMEWORK"
    for name, params in (("model", {}), ("encode", {"factors": "0"}), ("decode", {"z": "0"})):
        status, sentence = client.refused(name, run="demo/main", id=folder.id, **params)
        assert (status, sentence) == (400, found["no_sliders"])
    for name in ("trials", "environment", "figures"):
        client.get(name, run="demo/main")
    assert "stranger" not in sys.modules
    assert not (tmp_path / "stranger.ran").exists()


@pytest.mark.parametrize("damage", ["cut", "changed", "foreign", "none"])
def test_a_checkpoint_that_is_damaged_never_loads_and_says_so(tiny, tmp_path, dashboard, damage):
    shutil.copytree(tiny.path, tmp_path / "runs" / "tiny" / "main")
    run = Run(tmp_path / "runs" / "tiny" / "main")
    folder = run.trials()[0]
    for step in folder.checkpoints.steps():
        path = folder.checkpoints.path(step)
        data = path.read_bytes()
        if damage == "none":
            path.unlink()
        else:
            path.write_bytes({"cut": data[:-10], "changed": data[:-1] + b"\0\1", "foreign": b"PK\3\4"}[damage])
    with pytest.raises(TrialError, match=r"no intact checkpoint|no checkpoint yet"):
        latents.Models().get(run, folder)
    status, sentence = dashboard(tmp_path / "runs").refused("model", run="tiny/main", id=folder.id)
    assert status == 400
    assert "checkpoint" in sentence


def test_few_models_are_kept(tiny):
    models = latents.Models()
    for folder in tiny.trials()[: latents.KEPT + 1]:
        models.get(tiny, folder)
    assert len(models.opened) == latents.KEPT
    assert str(tiny.trials()[0].path) not in {path for path, _ in models.opened}

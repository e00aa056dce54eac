"""Names become parts of paths; none leads out of the folder that is meant, whatever it is made of."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import RunMaker
from disentune.data import DATASETS, grid_file
from disentune.data.prepared.download import download
from disentune.errors import ConfigError, DataError
from disentune.files import documents
from disentune.files.storage import RemotePath, place
from disentune.parameters import validated
from disentune.plugin import File
from disentune.runs.ledger import find_run
from disentune.sessions.study import run_folder
from disentune.spec.settings import Wandb
from disentune.spec.sweepfile import parse_sweep
from disentune.tracking import sending
from disentune.tracking.connection import Connection
from fuzz.commands import called, complaint

NASTY = [
    "..", ".", "/", "../x", "a/../../x", "/etc/passwd", "a/b", "a//b", "\\x", "..\\x", ".hidden", "-x", "--set", "",
    " ", "a b", "a\nb", "a\n", "\n", "a\0b", "\0", "x" * 101, "x" * 5000, "é", "\u202e", "．．/x", "a:b", "a*", "~",
    "~root", "$HOME", "$(id)", "`id`", "%2e%2e", "con", "nul", "sweep.yaml", "trials", "a..", "a..b", "s3://b/x",
    "C:\\x", "\ud800",
]  # fmt: skip
PLAIN = ["con", "nul", "sweep.yaml", "trials", "a..", "a..b", "x" * 101]
"""Of these the ones that are odd, but lead nowhere."""
TRIAL = """\
trial:
  dataset: {name: xysquares, image_size: 8, square_size: 2}
  model: {name: mlp, latents: 2}
  framework: {name: ae}
  recon: {name: mse}
  training: {steps: 1, batch_size: 2, learning_rate: 1e-3}
  loss_scale: mean
"""
names = st.text(max_size=12) | st.text("./\\-~ a\n\0", max_size=12) | st.sampled_from(NASTY)


def tree_of(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


# ---- runs and sweeps


@settings(max_examples=200, deadline=None)
@given(names)
@example("main")
def test_a_run_is_a_folder_of_its_sweep_or_refused(name: str) -> None:
    try:
        run = run_folder("/storage", "sweep", name)
    except ConfigError:
        return
    assert run.path.parent == Path("/storage/sweep")
    assert Path(os.path.normpath(run.path)) == run.path


@settings(max_examples=100, deadline=None)
@given(names)
@example("demo")
def test_a_sweep_has_a_plain_name_or_is_refused(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / "named.yaml"
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        documents.dump({"name": name, **documents.parse(TRIAL, "x").value}, file)
    try:
        sweep, problems, _ = parse_sweep(path)
    except ConfigError:
        return
    assert problems or (Path("/s") / sweep.name).parent == Path(os.path.normpath(Path("/s") / sweep.name)).parent


@pytest.mark.parametrize("text", [text for text in NASTY if "://" not in text])
def test_looking_for_a_run_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    RunMaker(tmp_path / "runs" / "demo" / "main").sweep()
    before = tree_of(tmp_path)
    with suppress(ConfigError):
        assert (find_run(text).path / "sweep.yaml").is_file()
    assert tree_of(tmp_path) == before


def test_a_run_that_is_a_link_to_itself_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "main").symlink_to("main")
    assert complaint(called("status", "demo")) == ""
    assert complaint(called("status", "demo/main")) == ""
    assert called("status", "demo").code == 2


@pytest.mark.parametrize(
    "address", ["s3://b/../x", "s3://bk/./x", "s3://bk/a\nb", "s3://bk/a\0b", "s3://../x", "s3://-/x"]
)
def test_an_address_of_a_store_never_leads_above_its_bucket(address: str) -> None:
    with pytest.raises(ConfigError):
        place(address)


def test_an_address_of_a_store_stays_in_its_bucket() -> None:
    found = place("s3://bucket//a///b/")
    assert isinstance(found, RemotePath)
    assert str(found / "c") == "s3://bucket/a/b/c"
    assert str(RemotePath("s3", "bucket").parent) == "s3://bucket"


# ---- search spaces


@pytest.mark.parametrize("name", NASTY)
def test_a_search_space_is_a_file_of_its_folder_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "x.yaml").write_text("model.latents: 5\n")
    with open("sweep.yaml", "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(TRIAL)
        documents.dump({"arms": {"a": {"search_space": name}}}, file)
    try:
        sweep, problems, _ = parse_sweep(Path("sweep.yaml"))
    except ConfigError:
        return
    assert any("search_space" in problem.text for problem in problems)
    assert sweep.arms["a"]["model.latents"].value == 2


@pytest.mark.parametrize("target", ["../x.yaml", "/etc/passwd", "loop.yaml", "nowhere", "../search_spaces/../x.yaml"])
def test_a_search_space_that_is_a_link_out_of_its_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "search_spaces" / "deep").mkdir(parents=True)
    (tmp_path / "x.yaml").write_text("model.latents: 5\n")
    for name in ("loop.yaml", "deep/loop.yaml"):
        (tmp_path / "search_spaces" / name).symlink_to(target)
        (tmp_path / "sweep.yaml").write_text(f"{TRIAL}arms: {{a: {{search_space: {name.removesuffix('.yaml')}}}}}\n")
        _, problems, _ = parse_sweep(Path("sweep.yaml"))
        assert len(problems) == 1
        assert "root:" not in problems[0].text


def test_a_search_space_may_be_a_link_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.yaml").write_text("model.latents: 5\n")
    (tmp_path / "elsewhere" / "y.yaml").symlink_to("x.yaml")
    (tmp_path / "search_spaces").symlink_to("elsewhere")
    (tmp_path / "sweep.yaml").write_text(f"{TRIAL}arms: {{a: {{search_space: y}}}}\n")
    sweep, problems, _ = parse_sweep(Path("sweep.yaml"))
    assert (problems, sweep.arms["a"]["model.latents"].value) == ([], 5)


# ---- data


@pytest.mark.parametrize("name", NASTY)
def test_a_data_set_is_one_of_the_catalogue_or_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown data set|cannot import|must be a Dataset"):
        DATASETS[name]


@settings(max_examples=200, deadline=None)
@given(names)
def test_no_part_of_a_users_path_becomes_part_of_ours(path: str) -> None:
    mistakes: list = []
    tree = {"path": path, "factor_names": ["a"], "factor_sizes": [2], "image_shape": [1, 8, 8]}
    params = validated(grid_file.Params, tree, "", mistakes)
    if params is None:
        assert mistakes
        return
    assert grid_file.source(params).key.removeprefix("grid_file_").isalnum()
    assert path.startswith("/") or Path(os.path.normpath(Path("/root") / path)).is_relative_to("/root")


@pytest.mark.parametrize("name", ["..", ".", "", "/x", "a/b", "../x", "a\\b", "a\nb", "a\0b"])
def test_a_file_to_download_has_a_plain_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="must have a plain name"):
        download(File(name, ("http://127.0.0.1:9/x",)), tmp_path / "downloads", "command", lambda *told: None)
    assert list(tmp_path.iterdir()) == []


# ---- W&B


@pytest.mark.parametrize("name", [name for name in NASTY if name not in PLAIN])
@pytest.mark.parametrize("key", ["project", "entity"])
def test_a_project_or_entity_of_wandb_has_a_plain_name(key: str, name: str) -> None:
    mistakes: list = []
    validated(Wandb, {key: name}, "wandb", mistakes)
    assert [mistake.key for mistake in mistakes] == [f"wandb.{key}"]


@pytest.mark.parametrize("group", NASTY)
def test_a_group_of_wandb_is_no_part_of_a_path(make_run: Callable[[], RunMaker], group: str) -> None:
    maker = make_run()
    trial = maker.run.trial(maker.trial([]))
    told = Connection(False, "https://x", "p", None, group, (), False)
    assert sending._identity(trial, told, maker.run.sweep(), maker.run)["dir"] == str(trial.path)

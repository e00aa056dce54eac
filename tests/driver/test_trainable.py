"""Ray's edge in the worker: what a reused process holds, and what happens on a real, local Ray with made-up GPUs."""

import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ray import tune

from disentune.driver import trainable
from disentune.driver.nodes import is_dead
from disentune.driver.search import Causes, Ends, LedgerSearch
from disentune.driver.trainable import SegmentTrainable
from disentune.files.notice import notice_path
from disentune.learn import cuda
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import StepReport, Unclean
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from processes import patience_s
from simulator import simulate, table

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # Ray's own


@pytest.fixture
def worker(monkeypatch):
    """A worker whose segments are only names, and how much GPU memory it will seem to hold."""
    held = []

    def work(segment, node_id, leaving):
        yield StepReport(0, note=f"a checkpoint of {segment.name} is damaged")
        yield StepReport(1, {"step": 1, "metrics": {}})
        yield StepReport(2, None, "retried", f"{segment.name} ran out of memory")

    monkeypatch.setattr(
        trainable, "Segment", lambda name: SimpleNamespace(name=name, settings={"resources": {"gpu": name == "gpu"}})
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(trainable, "work", work)
    monkeypatch.setattr(cuda, "release", lambda: held.pop() if held else 0)
    made = SegmentTrainable.__new__(SegmentTrainable)
    made.setup({"segment": '{"name": "first"}'})
    return made, held


def test_a_slice_hands_over_its_rows_how_it_ended_and_what_to_say(worker):
    made, _ = worker
    result = made.step()
    assert result["rows"] == [{"step": 1, "metrics": {}}]
    assert (result["at_step"], result["outcome"], result["done"]) == (2, "retried", True)
    assert result["note"].splitlines() == ["a checkpoint of first is damaged", "first ran out of memory"]


@pytest.mark.parametrize("bytes_held", [0, cuda.LEAK_BYTES])
def test_a_worker_that_is_clean_takes_the_next_trial(worker, bytes_held):
    made, held = worker
    held.append(bytes_held)
    assert made.reset_config({"segment": '{"name": "second"}'})
    assert "second ran out of memory" in made.step()["note"]


@pytest.mark.parametrize(
    ("bytes_held", "text"), [(512 << 20, "left 512 MB of GPU memory"), (sys.maxsize, "made the GPU unusable")]
)
def test_a_worker_that_is_not_clean_refuses_the_next_trial(worker, bytes_held, text):
    made, held = worker
    held.append(bytes_held)
    assert made.reset_config({"segment": '{"name": "second"}'}), "Tune would tell nobody of a False"
    with pytest.raises(Unclean, match=text):
        made.step()


def test_a_trial_sees_a_gpu_only_if_it_holds_one(worker):
    made, _ = worker
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    os.environ["CUDA_VISIBLE_DEVICES"] = "3"
    made.setup({"segment": '{"name": "gpu"}'})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"


def test_a_trial_asks_for_its_share_or_for_the_whole_gpu_its_segment_says():
    for gpu in (0.5, 1):
        segment = json.dumps({"settings": {"resources": {"cpu": 1, "gpu": gpu}}})
        request = SegmentTrainable.default_resource_request({"segment": segment})
        assert request.bundles == [{"CPU": 1, "GPU": gpu}]


# ---- on a real Ray

FRAGILE = r"""
import os
import pathlib
import sys
import time
from dataclasses import replace

import ray
import torch
from disentune.learn import cuda
from disentune.frameworks import FRAMEWORKS
from disentune.files.notice import notice_path

HERE = pathlib.Path(__file__).parent
deadline = time.monotonic() + 3000


def once(name):
    try:
        (HERE / name).touch(exist_ok=False)
        return True
    except FileExistsError:
        return False


def loss(model, batch, params, step):
    if step.number == 1:
        with open(HERE / "seen", "a") as file:
            file.write(f"{os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
        MEETING
    if step.number == 5:
        TROUBLE
    return plain.loss(model, batch, params, step)


plain = FRAMEWORKS["beta_vae"]
FRAMEWORK = replace(plain, name="fragile", loss=loss)
"""
SWEEP = """
name: tiny
trial:
  dataset: {name: xysquares, image_size: 8, square_size: 2, grid_size: 3, squares: 2, spacing: 1}
  model: {name: mlp, width: 8, latents: 3}
  recon: {name: mse}
  training: {steps: 12, batch_size: 4, learning_rate: 1e-2, log_every: 3, device: cpu}
  evaluation: {metrics: [mig], every: 3}
  framework: {name: "fragile:FRAMEWORK", beta: 1e-3}
  loss_scale: mean
arms: {all: {}}
seeds: 4
objective: {metric: mig, mode: max}
checkpoint: {every_steps: 2}
"""


@pytest.fixture(scope="module")
def ray_with_gpus():
    """Four CPUs and two GPUs that do not exist, in a session of our own."""
    import ray

    folder = tempfile.mkdtemp(prefix="dr-")
    settings = {"RAY_TMPDIR": folder, "RAY_AIR_NEW_OUTPUT": "0", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
                "TUNE_GLOBAL_CHECKPOINT_S": "1000000", "RAY_CHDIR_TO_TRIAL_DIR": "0"}  # fmt: skip
    before = dict(os.environ)
    os.environ.update(settings)
    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="CRITICAL")
    yield ray
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)
    shutil.rmtree(folder, ignore_errors=True)


class Sweep:
    """A sweep of four trials, each the same fragile plug-in; what becomes of it on Ray."""

    def __init__(self, folder: Path, trouble: str, *overrides: str, meeting: str = "pass"):
        self.folder = folder
        (folder / "fragile.py").write_text(FRAGILE.replace("TROUBLE", trouble).replace("MEETING", meeting))
        (folder / "tiny.yaml").write_text(SWEEP)
        self.overrides, self.told, self.requests = overrides, [], []

    def carry_out(self, stopping=lambda: False) -> Run:
        run = Run(self.folder / "runs" / "tiny" / "main")
        with run.locked() as session:
            asked = check(read_sweep(self.folder / "tiny.yaml", self.overrides))
            planner = Planner(run, asked, session, is_dead=is_dead)
            at_a_time = planner.settings.resources.concurrent
            self._fit(LedgerSearch(planner, stopping, self.listen, concurrent=at_a_time))
        return run

    def listen(self, trial_id, news) -> None:
        self.told.append((trial_id, news))

    def _fit(self, search) -> None:
        suggest = search.suggest

        def remembered(trial_id):
            config = suggest(trial_id)
            if isinstance(config, dict):
                segment = json.loads(config["segment"])
                self.requests.append((segment["trial_id"], segment["settings"]["resources"]["gpu"]))
            return config

        search.suggest, causes = remembered, Causes(search)
        tuner = tune.Tuner(
            SegmentTrainable,
            tune_config=tune.TuneConfig(search_alg=search, num_samples=-1, reuse_actors=True),
            run_config=tune.RunConfig(
                storage_path=str(self.folder / "scratch"), callbacks=[causes], verbose=0, stop=Ends(search),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=0),
            ),
        )  # fmt: skip
        with causes.listening():
            tuner.fit()

    def expected(self) -> list:
        """What an undisturbed sweep gives, without Ray."""
        run = Run(self.folder / "calm" / "tiny" / "main")
        simulate(run, self.folder / "tiny.yaml", np.random.default_rng(0))
        return table(run)

    @property
    def message(self) -> str:
        """The only one on a trial that lost its worker."""
        found = [news["lost"] for _, news in self.told if "lost" in news]
        assert len(found) == 1, found
        return found[0]

    def faults(self, run: Run) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder in run.trials():
            for cause, times in folder.status().faults.items():
                found[cause] = found.get(cause, 0) + times
        return found


@pytest.fixture
def sweep_with(tmp_path, monkeypatch, ray_with_gpus):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda trouble, *overrides, **more: Sweep(tmp_path, trouble, *overrides, **more)
    sys.modules.pop("fragile", None)


ALL_FOUR = 'while len((HERE / "seen").read_text().splitlines()) < 4 and time.monotonic() < deadline: time.sleep(0.05)'


@pytest.mark.ray
@pytest.mark.long
def test_out_of_memory_is_retried_alone_on_a_whole_gpu_to_the_same_bits(sweep_with):
    trouble = 'if once("first"): raise torch.OutOfMemoryError("CUDA out of memory")'
    sweep = sweep_with(trouble, "resources.gpu=0.5", meeting=ALL_FOUR)
    run = sweep.carry_out()
    assert (sweep.folder / "seen").read_text().splitlines() in permutations_of("0", "0", "1", "1")
    assert sweep.faults(run) == {"memory": 1}
    trial_id = sweep.message.split()[0]
    assert f"{trial_id} ran out of memory and continues from step 4: out of memory: OutOfMemoryError" in sweep.message
    assert [gpu for asked, gpu in sweep.requests if asked == trial_id] == [0.5, 1]
    assert {gpu for asked, gpu in sweep.requests if asked != trial_id} == {0.5}
    assert table(run) == sweep.expected()


def permutations_of(*values):
    return [list(order) for order in set(itertools.permutations(values))]


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize(
    ("trouble", "faults", "text"),
    [
        ("os.kill(os.getpid(), 9)", {"lost": 1}, "lost its worker at step 4 and continues from there"),
        ("os._exit(3)", {"lost": 1}, "lost its worker at step 4 and continues from there"),
        ("time.sleep(10_000)", {"hang": 1}, "hung at step 4 and continues from there"),
        ("raise OSError(28, 'No space left on device')", {"storage": 1}, "could not use the storage at step 4"),
        (
            "cuda.release = lambda: 1 << 30",
            {},
            "the previous trial left 1024 MB of GPU memory allocated in this process",
        ),
    ],
    ids=["killed", "exits", "hangs", "storage", "unclean"],
)
def test_a_worker_that_ends_is_replaced_and_the_sweep_gives_the_same_bits(sweep_with, trouble, faults, text):
    hang_after = [f"retries.hang_after_s={patience_s(15)}"] if "hang" in faults else []
    sweep = sweep_with(f'if once("first"): {trouble}', "resources.concurrent=1", *hang_after)
    run = sweep.carry_out()
    assert text in sweep.message
    assert sweep.faults(run) == faults
    assert table(run) == sweep.expected()


@pytest.fixture
def guarded():
    """What hangs is ended."""

    def end(number, frame):
        raise TimeoutError("still waiting")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(int(patience_s(60)))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.ray
@pytest.mark.long
def test_trials_that_wait_for_a_slot_do_not_hold_up_a_stop(sweep_with, guarded):
    sweep, handed_over = sweep_with("pass", "resources.cpu=100"), []

    def stopping():
        """Some seconds after the first trial was handed to Tune."""
        if sweep.requests and not handed_over:
            handed_over.append(time.monotonic())
        return bool(handed_over) and time.monotonic() > handed_over[0] + 3

    run = sweep.carry_out(stopping)
    assert handed_over
    assert not any(trial.status().attempts for trial in run.trials())


@pytest.mark.ray
@pytest.mark.long
def test_trials_leave_a_node_that_is_taken_away_and_are_not_blamed(sweep_with, ray_with_gpus):
    notice = notice_path(ray_with_gpus.get_runtime_context().get_node_id())
    trouble = 'if once("first"): notice_path(ray.get_runtime_context().get_node_id()).touch(); time.sleep(1)'
    sweep = sweep_with(trouble, "resources.concurrent=1")
    sweep.listen = lambda trial_id, news: (sweep.told.append((trial_id, news)), notice.unlink(missing_ok=True))
    try:
        run = sweep.carry_out()
    finally:
        notice.unlink(missing_ok=True)
    assert "left a node that is being reclaimed at step 5 and continues from there" in sweep.message
    assert sweep.faults(run) == {"preempted": 1}
    assert table(run) == sweep.expected()

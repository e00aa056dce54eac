"""What only a GPU can show. Written without one: the first person who runs `make test-gpu` may have to correct it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from disentune.learn import cuda, process
from disentune.learn import training as training_module
from disentune.learn.training import Training, built_model
from disentune.runs.ledger import Run
from disentune.runs.segment import Segment, work
from disentune.spec.config import TrialConfig
from disentune.spec.settings import Settings
from framework_examples import CASES, EXAMPLES
from processes import patience_s
from tiny_trials import assert_equal, through_disk, tiny

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "build" / "gpu_throughput.md"
SCRIPT = Path(__file__).with_name("one_of_several.py")
SHARED = 4
PRECISIONS = ("float32", "tf32", "bfloat16")


@pytest.fixture(autouse=True)
def untrained_donors(monkeypatch):
    monkeypatch.setattr(training_module, "donated", lambda donor: built_model(tiny(seed=int(donor.trial, 16))))


def on_gpu(framework: object = "beta_vae", **training: object) -> TrialConfig:
    return tiny(framework, training={"device": "cuda", **training})


def rows(training: Training, until: int | None = None) -> list:
    return [progress.row for progress in training.run(until) if progress.row]


# ---- equal bits

FRAMEWORKS = [on_gpu({"name": name, **EXAMPLES[name][number]}) for name, number in CASES]  # parsing needs no GPU
TRIALS = [*FRAMEWORKS, *(on_gpu(precision=precision) for precision in PRECISIONS)]


@pytest.mark.parametrize("config", TRIALS, ids=lambda one: f"{one.framework.name}-{one.training.precision}-{one.id}")
def test_two_runs_and_a_resumed_one_have_equal_bits(config):
    straight, again, first = Training(config), Training(config), Training(config)
    expected = rows(straight)
    assert rows(again) == expected
    before = rows(first, until=5)
    resumed = Training(config, through_disk(first))
    assert before + rows(resumed) == expected
    for one in (again, resumed):
        assert_equal(through_disk(one), through_disk(straight))


def test_images_kept_on_the_device_give_the_bits_of_images_that_are_sent():
    sent, kept = (Training(on_gpu(), on_device=on_device) for on_device in (False, True))
    assert (sent.inputs.resident, kept.inputs.resident.device.type) == (None, "cuda")
    assert rows(sent) == rows(kept)
    assert_equal(through_disk(sent), through_disk(kept))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("tf32", 1e-2), ("bfloat16", 5e-2)])
def test_the_first_losses_are_those_of_the_cpu_up_to_the_precision(precision, tolerance):
    found = rows(Training(on_gpu(precision=precision)), until=4)[0]["metrics"]["loss"]
    expected = rows(Training(tiny()), until=4)[0]["metrics"]["loss"]
    assert found == pytest.approx(expected, rel=tolerance)


# ---- memory


def test_memory_beyond_a_share_is_out_of_memory_and_the_process_goes_on():
    total = torch.cuda.get_device_properties(0).total_memory
    process.prepare(1, "cuda", 1 / SHARED)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(int(total * 1.1 / SHARED), dtype=torch.uint8, device="cuda")
    assert cuda.is_out_of_memory(caught.value)
    assert cuda.release() <= cuda.LEAK_BYTES
    assert rows(Training(on_gpu()))


def test_a_trial_that_is_out_of_memory_fails_with_that_cause(tmp_path):
    wide = {"name": "mlp", "width": 4096, "depth": 3, "latents": 4}
    config = TrialConfig.parse({**on_gpu().tree(), "model": wide})
    settings = Settings(resources={"gpu": 0.001}, retries={"memory": 0})  # of 80 GB: 80 MB; the weights take 134 MB
    run = Run(tmp_path / "runs" / "demo" / "main")
    with run.locked() as session:
        folder = run.trial(config.id)
        folder.create(config, ("all",))
        reports = list(work(Segment(str(run.path), config.id, 12, session, settings.model_dump(), {})))
    assert reports[-1].outcome == "failed"
    assert folder.status().cause.startswith("out of memory: ")
    assert cuda.release() <= cuda.LEAK_BYTES


# ---- several trials on one GPU


def measured(count: int, seconds: float) -> list[dict[str, float]]:
    """What each of so many trials measures that train at once, each with its share of the GPU."""
    command = [sys.executable, str(SCRIPT), str(1 / count), str(seconds)]
    trials = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        assert [trial.stdout.readline() for trial in trials] == ["ready\n"] * count
        for trial in trials:
            trial.stdin.write("\n")
            trial.stdin.flush()
        return [json.loads(trial.communicate(timeout=patience_s())[0]) for trial in trials]
    finally:
        for trial in trials:
            trial.kill()
            trial.wait()


def test_four_trials_on_one_gpu_keep_to_their_shares_of_its_memory():
    found = measured(SHARED, seconds=3)
    assert [one["held"] <= one["of"] / SHARED for one in found] == [True] * SHARED
    assert all(one["steps_per_s"] > 0 for one in found)


@pytest.mark.long
def test_throughput_of_one_to_eight_trials_per_gpu_is_written_as_a_table():
    lines = [
        f"Steps per second on one {torch.cuda.get_device_name(0)}: conv64, batches of 256 images of 3 x 64 x 64.",
        "",
        "| trials per GPU | `resources.gpu` | each | together |",
        "|---|---|---|---|",
    ]
    for count in (1, 2, 4, 8):
        rates = [one["steps_per_s"] for one in measured(count, seconds=20)]
        lines.append(f"| {count} | {1 / count:g} | {sum(rates) / count:.1f} | {sum(rates):.1f} |")
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
    print(TABLE.read_text())  # noqa: T201

import http.server
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np
import psutil
import pytest

from disentune.cluster import submission
from disentune.cluster.submission import Job, assert_plugins_sent, assert_storage, follow, packed, submit, url_of
from disentune.environment import versions
from disentune.errors import ConfigError
from disentune.files import documents
from disentune.runs.ledger import Run
from disentune.spec.space import read
from processes import patience_s, rows_on_disk, wait_until
from ray_head import BIN, free_ports, ray_head
from simulator import simulate, sweep_file, table

# ---- a cluster's side, in memory


class Status(Enum):
    PENDING = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    STOPPED = 4

    def is_terminal(self) -> bool:
        return self.value > 1


@dataclass
class Details:
    submission_id: str | None
    status: Status = Status.RUNNING
    metadata: dict | None = None
    driver_exit_code: int | None = None
    message: str = ""
    error_type: str | None = None


@dataclass
class Client:
    jobs: list = field(default_factory=list)
    sent: list = field(default_factory=list)
    pieces: list = field(default_factory=list)
    """Of a log, one list for each connection; an exception breaks it."""
    refusals: list = field(default_factory=list)

    def list_jobs(self):
        return self.jobs

    def submit_job(self, **job):
        if self.refusals:
            raise self.refusals.pop(0)
        folder = Path(job["runtime_env"]["working_dir"])
        files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
        self.sent.append({**job, "files": files})
        return job["submission_id"]

    def get_job_info(self, id):
        return next(job for job in self.jobs if job.submission_id == id)

    async def tail_job_logs(self, id):
        for piece in self.pieces.pop(0):
            if isinstance(piece, Exception):
                raise piece
            yield piece


@pytest.fixture
def sweep(tmp_path):
    return read(sweep_file(tmp_path)).sweep


# ---- what is sent


def test_the_resolved_sweep_is_sent_and_is_the_same_sweep_there(sweep, tmp_path):
    client = Client()
    id = submit(client, Job(sweep, "main", "/shared", ["--limit", "2"]))
    (sent,) = client.sent
    assert id == sent["submission_id"] == "disentune-tiny-main-1"
    ((name, text),) = sent["files"].items()
    (tmp_path / "there.yaml").write_text(text)
    assert read(tmp_path / "there.yaml").sweep.resolved() == sweep.resolved()
    arguments = shlex.split(sent["entrypoint"].rpartition("; exec ")[2])
    assert arguments[arguments.index("--") + 1 :] == [
        "run", name, "--address", "auto", "--name", "main", "--storage", "/shared", "--limit", "2"
    ]  # fmt: skip
    assert json.loads(arguments[arguments.index("--sent-by") + 1]) == versions()


def test_no_key_is_sent(sweep, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s" * 40)
    client = Client()
    submit(client, Job(sweep, "main", "s3://bucket/runs"))
    assert not any(key in str(client.sent) for key in ("k" * 40, "s" * 40))
    assert set(client.sent[0]["runtime_env"]["env_vars"]) == {"RAY_JOB_STOP_WAIT_TIME_S"}


def test_a_working_folder_is_sent_without_what_is_not_source(sweep, tmp_path):
    own = tmp_path / "own"
    for name in ("lab/vae.py", "runs/tiny/main/rows", ".git/HEAD", "lab/__pycache__/vae.pyc", ".gitignore", "notes.md"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text("*")
    with packed(sweep, own) as folder:
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert documents.read(folder / submission.SWEEP_FILE).value["name"] == "tiny"
    assert files == {submission.SWEEP_FILE, "lab/vae.py", "notes.md"}
    assert not folder.exists()
    assert not (own / submission.SWEEP_FILE).exists()


def test_a_working_folder_that_is_too_large_is_refused_with_what_makes_it_so(sweep, tmp_path, monkeypatch):
    (tmp_path / "own" / "data").mkdir(parents=True)
    (tmp_path / "own" / "data" / "images.npy").write_bytes(b"0" * 2_000_000)
    monkeypatch.setattr(submission, "MOST_MB", 1)
    with (
        pytest.raises(ConfigError, match=r"is larger than 1 MB, mostly because of 'data' \(2 MB\)"),
        packed(sweep, tmp_path / "own"),
    ):
        pass
    with pytest.raises(ConfigError, match="is not a folder"), packed(sweep, tmp_path / "nowhere"):
        pass


def test_a_link_counts_as_what_it_points_to(sweep, tmp_path, monkeypatch):
    (tmp_path / "large").write_bytes(b"0" * 2_000_000)
    own = tmp_path / "own"
    own.mkdir()
    (own / "data").symlink_to(tmp_path / "large")
    (own / "nowhere").symlink_to(tmp_path / "gone")
    monkeypatch.setattr(submission, "MOST_MB", 1)
    with pytest.raises(ConfigError, match="mostly because of 'data'"), packed(sweep, own):
        pass
    (own / "data").unlink()
    with packed(sweep, own) as folder:
        assert [path.name for path in folder.iterdir()] == [submission.SWEEP_FILE]


def test_hidden_files_caches_and_runs_are_not_sent(sweep, tmp_path):
    for name in (".env", ".git/config", "__pycache__/a.pyc", "runs/a/rows", "wandb/log", "lab/.netrc", "lab/vae.py"):
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "own" / name).write_text("secret")
    with packed(sweep, tmp_path / "own") as folder:
        sent = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert sent == {"lab/vae.py", submission.SWEEP_FILE}


@pytest.mark.parametrize("name", ["my_recon", "lab.my_recon"])
def test_a_plugin_of_ones_own_must_be_sent_along(name, tmp_path, monkeypatch):
    home = tmp_path / "home"
    file = home.joinpath(*name.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True)
    if file.parent != home:
        (file.parent / "__init__.py").touch()
    file.write_text("from disentune.recon.mse import RECON\n")
    monkeypatch.syspath_prepend(home)
    path = sweep_file(tmp_path)
    path.write_text(path.read_text().replace("recon: {name: mse}", f"recon: {{name: '{name}:RECON'}}"))
    sweep = read(path).sweep
    with pytest.raises(ConfigError, match=f"'{name}:RECON' from .*; send it with --working-dir {home}$"):
        assert_plugins_sent(sweep, None)
    with pytest.raises(ConfigError, match="does not have"):
        assert_plugins_sent(sweep, tmp_path / "elsewhere")
    assert_plugins_sent(sweep, home)


def test_plugins_of_the_package_need_nothing(sweep):
    assert_plugins_sent(sweep, None)


@pytest.mark.parametrize("storage", ["runs", "./runs", "~/runs", ""])
def test_a_storage_of_this_machine_alone_is_refused(storage):
    with pytest.raises(ConfigError, match="must be an absolute path that every node sees"):
        assert_storage(storage)


@pytest.mark.parametrize("storage", ["/shared/runs", None])
def test_a_storage_that_the_cluster_may_have_is_taken(storage):
    assert_storage(storage)


# ---- one job a run


def test_a_run_that_is_being_run_is_refused_by_name(sweep):
    metadata = {"disentune_run": "tiny/main", "disentune_storage": "/shared"}
    client = Client([Details("disentune-tiny-main-1", Status.PENDING, metadata)])
    for storage in ("/shared", None):
        with pytest.raises(ConfigError, match="tiny/main is already being run by job disentune-tiny-main-1"):
            submit(client, Job(sweep, "main", storage))
    assert client.sent == []


def test_another_run_is_not_in_the_way(sweep):
    metadata = {"disentune_run": "tiny/main", "disentune_storage": "/shared"}
    ended = Details("disentune-tiny-main-1", Status.FAILED, metadata)
    elsewhere = Details("disentune-tiny-main-2", Status.RUNNING, {**metadata, "disentune_storage": "/other"})
    by_hand = Details(None, Status.RUNNING, None)
    client = Client([ended, elsewhere, by_hand])
    assert submit(client, Job(sweep, "main", "/shared")) == "disentune-tiny-main-3"  # Ray takes an id once
    assert submit(client, Job(sweep, "second", "/shared")) == "disentune-tiny-second-1"


def test_a_head_that_has_just_been_started_is_waited_for(sweep, monkeypatch):
    client = Client(refusals=[RuntimeError("status code 500: No available agent to submit job")] * 2)
    assert submit(client, Job(sweep, "main", "/shared"))
    monkeypatch.setattr(submission, "AGENT_S", -1.0)
    client.refusals = [RuntimeError("status code 500: No available agent to submit job")]
    with pytest.raises(ConfigError, match="the head's dashboard agent has not started"):
        submit(client, Job(sweep, "main", "/shared"))
    client.refusals = [RuntimeError("Request failed with status code 400: submission_id is taken.\n  File ...")]
    with pytest.raises(ConfigError, match=r"did not accept the job: Request failed .* is taken\.$"):
        submit(client, Job(sweep, "main", "/shared"))


@pytest.mark.parametrize(
    ("there", "code", "complaint"),
    [("", 2, "disentune is not installed for the python on the head"), ("import sys; sys.exit(1)", 1, "")],
)
def test_a_head_without_the_package_is_distinguished_from_a_failed_sweep(tmp_path, there, code, complaint):
    """As `sh` runs it: a python that has a package of this name, or none."""
    if there:
        (tmp_path / "disentune").mkdir()
        (tmp_path / "disentune" / "__init__.py").touch()
        (tmp_path / "disentune" / "thing.py").write_text(there)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {BIN / "python"} -S -E "$@"\n')
    (tmp_path / "python").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", submission.python_on_the_head(["-m", "disentune.thing"])],
        cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code
    assert complaint in done.stdout


# ---- following


@pytest.mark.parametrize(
    ("status", "driver_code", "code"),
    [
        (Status.SUCCEEDED, 0, 0), (Status.FAILED, 1, 1), (Status.FAILED, 2, 2), (Status.FAILED, 130, 130),
        (Status.FAILED, -9, 137), (Status.STOPPED, None, 130), (Status.FAILED, None, 70),
    ],
)  # fmt: skip
def test_following_ends_with_the_exit_code_of_the_sweep(status, driver_code, code):
    client = Client([Details("job", status, {}, driver_code, "no environment\nat all")], pieces=[["all done\n"]])
    lines, said = [], []
    assert follow(client, "job", lines.append, said.append) == code
    assert lines == ["all done"]
    assert said == ([] if code != 70 else ["the job failed before its command started: no environment"])


def test_a_log_that_comes_in_pieces_over_broken_connections_is_shown_once(monkeypatch):
    monkeypatch.setattr(submission.time, "sleep", lambda seconds: None)
    ours = ["Running entrypoint for job j: python ...\n", "12 trials\n0/12", " ended\n", "1/12 ended\n", "12 done\n"]
    whole = "".join(ours)
    pieces = [[whole[:50], OSError("reset")], [RuntimeError("closed")], [whole[:20], whole[20:70]], [whole]]
    client = Client([Details("j")], pieces=pieces)
    client.get_job_info = lambda id: Details("j", Status.RUNNING if client.pieces else Status.SUCCEEDED)
    lines, said = [], []
    assert follow(client, "j", lines.append, said.append) == 0
    assert lines == ["12 trials", "0/12 ended", "1/12 ended", "12 done"]
    assert said == ["lost the connection to the cluster (reset); the job continues; reconnecting"]


def test_a_cluster_that_stays_away_is_given_up(monkeypatch):
    monkeypatch.setattr(submission, "LOST_S", -1.0)
    with pytest.raises(ConfigError, match="job j may still be running"):
        follow(Client([Details("j")], pieces=[[OSError("gone")]]), "j", print, print)


# ---- the address


@pytest.mark.parametrize(
    "address", ["ray://head:10001", "head:8265", "http://head:8265/api", "http://me:secret@head", ""]
)
def test_what_takes_no_jobs_is_not_an_address(address):
    with pytest.raises(ConfigError, match="must be the dashboard"):
        url_of(address)


def test_an_address_is_taken_as_people_write_it():
    assert url_of("http://head:8265/") == "http://head:8265"
    assert url_of("auto") == "http://127.0.0.1:8265"


@contextmanager
def server(status: int, content: str):
    """Answers everything in the same way."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http_server.server_port}"
        http_server.shutdown()


@pytest.mark.parametrize(
    ("status", "content", "complaint"),
    [
        (401, "Unauthorized", "requires a token, and none was sent; copy the head's ~/.ray/auth_token"),
        (403, "Forbidden", "refuses this machine's token; copy the head's"),
        (404, "nothing", "no Ray dashboard answers there"),
        (200, "<html>", "no Ray dashboard answers there"),
        (200, "{}", "no Ray dashboard answers there"),
    ],
)
def test_each_wrong_answer_has_its_message_in_one_line(status, content, complaint, disentune, tmp_path):
    sweep_file(tmp_path)
    with server(status, content) as url:
        code, _, said = disentune("submit", "tiny.yaml", "--address", url, "--storage", "/shared")
    assert (code, said.count("\n")) == (2, 1)
    assert complaint in said


def test_another_ray_is_refused():
    with pytest.raises(ConfigError, match=r"the cluster has Ray 2\.9\.0, this machine"):
        submission._assert_same_ray("http://head", "2.9.0")
    submission._assert_same_ray("http://head", versions()["ray"])


@pytest.mark.slow
def test_what_ray_finds_in_the_environment_does_not_lead_elsewhere(disentune, tmp_path, monkeypatch):
    sweep_file(tmp_path)
    with server(401, "") as url, server(404, "") as other:
        monkeypatch.setenv("RAY_ADDRESS", other)
        _, _, said = disentune("submit", "tiny.yaml", "--address", url, "--storage", "/shared")
    assert "requires a token" in said
    assert os.environ["RAY_ADDRESS"] == other


# ---- the command, before anything is sent


def test_a_server_that_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(submission, "ANSWER_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConfigError, match=rf"{url}: nothing answers there \(no answer in 0.3 s\)"):
            submission.connected(url)


@pytest.mark.parametrize("address", ["http://me:hush@host:8265", "ray://me:hush@host", "http://[::1"])
def test_what_is_not_an_address_is_refused_without_its_password(address):
    with pytest.raises(ConfigError, match="--address") as caught:
        submission.connected(address)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--storage", "/x", "--working-dir", "nowhere"], "nowhere: is not a folder"),
        (["--storage", "runs"], "must be an absolute path"),
        (["--storage", "/x", "--set", "training.steps=-1"], "training.steps: must be >= 1"),
        (["--storage", "/x", "--only", "seed == 7"], "selects no trial of the sweep"),
        (["--storage", "/x", "--only", "sed == 7"], "sed"),
        (["--storage", "/x", "--name", "a/b"], "--name 'a/b'"),
        (["--storage", "/x", "--set", "model={name: mlp, width: 100000000, latents: 3}"], "its first trial fails here"),
        (["--storage", "/x"], "nothing answers there"),
    ],
)
def test_mistakes_are_found_before_the_cluster_is_asked(arguments, complaint, disentune, tmp_path):
    sweep_file(tmp_path)
    (port,) = free_ports(1)
    code, _, said = disentune("submit", "tiny.yaml", "--address", f"http://127.0.0.1:{port}", *arguments)
    assert code == 2
    assert complaint in said
    assert ("nothing answers" in said) == (complaint == "nothing answers there")


class TestCommand:
    @pytest.fixture
    def client(self, monkeypatch, tmp_path):
        client = Client(pieces=[["3 done\n"]])
        monkeypatch.setattr(submission, "connected", lambda address: client)
        client.get_job_info = lambda id: Details(id, Status.FAILED, {}, 1)
        sweep_file(tmp_path, extra="wandb: {project: p}")
        return client

    def test_it_prints_the_job_and_how_to_follow_or_stop_it(self, client, disentune):
        code, said, _ = disentune("submit", "tiny.yaml", "--storage", "/x", "--only", "seed == 1", "--no-follow")
        assert code == 0
        assert said.splitlines() == [
            "job disentune-tiny-main-1: tiny/main, 6 trials, at http://127.0.0.1:8265",
            "  follow: ray job logs disentune-tiny-main-1 --follow --address http://127.0.0.1:8265",
            "  stop:   ray job stop disentune-tiny-main-1 --address http://127.0.0.1:8265   "
            "(its trials write checkpoints first)",
            "  status: disentune status /x/tiny/main",
        ]

    def test_followed_it_ends_as_the_sweep_does(self, client, disentune):
        code, said, _ = disentune("submit", "tiny.yaml", "--storage", "/x")
        assert (code, said.splitlines()[-1]) == (1, "3 done")

    def test_an_interrupt_only_stops_following(self, client, disentune, monkeypatch):
        def interrupted(*arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr(submission, "follow", interrupted)
        code, said, _ = disentune("submit", "tiny.yaml", "--storage", "/x")
        assert code == 130
        assert "no longer following; the job continues:\n  follow: ray job logs" in said

    def test_a_token_that_others_can_read_is_noted(self, client, disentune, monkeypatch, tmp_path):
        (tmp_path / "auth_token").write_text("made for a test")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "auth_token"))
        for mode, noted in ((0o644, True), (0o600, False)):
            (tmp_path / "auth_token").chmod(mode)
            _, _, said = disentune("submit", "tiny.yaml", "--storage", "/x", "--no-follow")
            assert (f"run: chmod 600 {tmp_path / 'auth_token'}" in said) == noted

    def test_a_note_says_that_the_key_for_wandb_stays_here(self, client, disentune, monkeypatch):
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        _, said, _ = disentune("submit", "tiny.yaml", "--storage", "/x", "--no-follow")
        assert "this machine's API key is not sent" in said
        assert "k" * 40 not in said + str(client.sent)


# ---- on a real head


@pytest.fixture(scope="module")
def head():
    with ray_head(token="t" * 64) as running:
        yield running


@contextmanager
def started(head, folder: Path, *arguments: str, **environment: str):
    """A command of ours; it does not outlive the test."""
    process = subprocess.Popen(
        [BIN / "disentune", *arguments], cwd=folder, env=head.environment | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with process:
        yield process
        process.kill()


def ended(head, folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    with started(head, folder, *arguments, **environment) as process:
        output, _ = process.communicate(timeout=patience_s())
        return process.returncode, output


def drivers(storage: Path) -> list[psutil.Process]:
    """Of runs in this storage, under a supervisor."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "disentune.cli" in words and str(storage) in words:
            found.append(process)
    return found


def stop_job(head, id: str) -> None:
    subprocess.run(
        [BIN / "ray", "job", "stop", id, "--address", head.dashboard],
        env=head.environment, capture_output=True, check=True, timeout=patience_s(),
    )  # fmt: skip


@pytest.mark.ray
@pytest.mark.long
def test_a_driver_that_is_killed_continues_and_the_table_is_that_of_the_undisturbed(head, tmp_path):
    path = sweep_file(tmp_path)
    path.write_text(path.read_text().replace("steps: 12,", "steps: 36,"))
    undisturbed = Run(tmp_path / "undisturbed" / "tiny" / "main")
    simulate(undisturbed, path, np.random.default_rng(0))
    storage = tmp_path / "storage"
    asked = ["submit", "tiny.yaml", "--address", head.dashboard, "--storage", str(storage)]
    with started(head, tmp_path, *asked) as process:
        wait_until(lambda: rows_on_disk(storage / "tiny" / "main"), "the first row")
        (driver,) = drivers(storage)
        driver.send_signal(signal.SIGKILL)
        code, said = ended(head, tmp_path, *asked)
        assert (code, "tiny/main is already being run by job disentune-tiny-main-1" in said) == (2, True)
        output, _ = process.communicate(timeout=patience_s())
    assert process.returncode == 0, output
    assert "supervisor: the driver was killed by SIGKILL; restarting in 1 s" in output
    assert table(Run(storage / "tiny" / "main")) == table(undisturbed)


@pytest.mark.ray
@pytest.mark.long
def test_a_stopped_job_has_checkpointed_and_can_be_sent_again(head, tmp_path):
    path = sweep_file(tmp_path)
    path.write_text(path.read_text().replace("steps: 12,", "steps: 100000,").replace("every_steps: 2", "every_s: 600"))
    storage = tmp_path / "storage"
    asked = ["submit", "tiny.yaml", "--address", head.dashboard, "--storage", str(storage), "--name", "stopped"]
    with started(head, tmp_path, *asked) as process:
        wait_until(lambda: rows_on_disk(storage / "tiny" / "stopped"), "the first row")
        stop_job(head, "disentune-tiny-stopped-1")
        output, _ = process.communicate(timeout=patience_s())
    assert process.returncode == 130, output
    assert "stopped (SIGTERM); every trial that had started has a checkpoint. Continue with:" in output
    steps = _steps_and_checkpoints(storage / "tiny" / "stopped")
    assert any(step for step, _ in steps)
    assert all(kept == step for step, kept in steps), "each trial is kept as it was when it stopped"
    code, said = ended(head, tmp_path, *asked, "--no-follow")
    assert (code, "job disentune-tiny-stopped-2" in said) == (0, True)
    wait_until(lambda: drivers(storage), "the driver")
    stop_job(head, "disentune-tiny-stopped-2")
    assert drivers(storage) == []


def _steps_and_checkpoints(path):
    """Of each trial the step that it had reached and that of its newest checkpoint; 0 and 0 if it never trained."""
    trials = Run(path).trials()
    return [(trial.status().step, max(trial.checkpoints.steps(), default=0)) for trial in trials]


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "complaint"),
    [
        ({"RAY_AUTH_TOKEN": "w" * 64}, "refuses this machine's token"),
        ({"RAY_AUTH_MODE": "disabled"}, "requires a token"),
    ],
)
def test_only_clients_with_the_token_are_admitted(head, tmp_path, mode, complaint):
    sweep_file(tmp_path)
    arguments = ["submit", "tiny.yaml", "--address", head.dashboard, "--storage", str(tmp_path)]
    code, said = ended(head, tmp_path, *arguments, **mode)
    assert code == 2
    assert complaint in said
    assert said.count("\n") == 1


@pytest.mark.ray
@pytest.mark.long
def test_a_sweep_that_cannot_run_there_ends_with_2(head, tmp_path):
    sweep_file(tmp_path)
    (tmp_path / "file").touch()
    arguments = ["submit", "tiny.yaml", "--address", head.dashboard, "--storage", str(tmp_path / "file" / "in")]
    code, said = ended(head, tmp_path, *arguments)
    assert code == 2, said
    assert "Traceback" not in said

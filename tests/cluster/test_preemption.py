"""The cloud's notice: two clouds' metadata servers on loopback, sound, refusing, hanging and talking nonsense."""

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from disentune.cluster import preemption
from disentune.cluster.preemption import Aws, Gcp, Notice, Raylet
from disentune.files import notice


class Metadata:
    """A server that answers by `(method, path)`: a text, a status, or a function of the headers."""

    def __init__(self):
        self.answers, self.asked, self.answer_headers = {}, [], {}
        metadata = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                metadata.asked.append((self.command, self.path))
                found = metadata.answers.get((self.command, self.path), 404)
                found = found(self.headers) if callable(found) else found
                status, text = (found, "") if isinstance(found, int) else (200, found)
                self.send_response(status)
                for name, value in metadata.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_PUT = answer

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def metadata(monkeypatch):
    server = Metadata()
    monkeypatch.setenv("DISENTUNE_METADATA_URL", server.url)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(preemption, "POLL_S", 0.01)
    yield server
    server.server.shutdown()
    server.server.server_close()


AWS = "/latest/meta-data/"
ACTION = ("GET", AWS + "spot/instance-action")


def aws(metadata, tokens=True):
    """IMDSv2: everything wants the token that a PUT gives."""
    given = []

    def token(headers):
        assert headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
        given.append(f"token-{len(given)}")
        return given[-1]

    def guarded(text):
        return lambda headers: text if given and headers["X-aws-ec2-metadata-token"] == given[-1] else 401

    metadata.answers = {
        ("PUT", "/latest/api/token"): token if tokens else 403,
        ("GET", AWS + "instance-id"): guarded("i-0123456789abcdef0"),
        ACTION: guarded(404),
    }
    return given, guarded


def in_seconds(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_aws_gives_two_minutes_and_tokens_that_run_out_are_renewed(metadata):
    given, guarded = aws(metadata)
    cloud = preemption.here()
    assert isinstance(cloud, Aws)
    assert cloud.notice() is None
    given.append("another")  # the token that the cloud holds is no longer ours
    assert cloud.notice() is None
    assert len(given) == 3
    metadata.answers[ACTION] = guarded(json.dumps({"action": "terminate", "time": in_seconds(120)}))
    what, seconds = cloud.notice()
    assert what == "spot instance: terminate"
    assert 115 <= seconds <= 120


def test_a_recommendation_to_move_is_only_mentioned_and_once(metadata, capsys):
    _, guarded = aws(metadata)
    metadata.answers[("GET", AWS + "events/recommendations/rebalance")] = guarded('{"noticeTime": "..."}')
    cloud = preemption.here()
    assert cloud.notice() is None
    assert cloud.notice() is None
    assert capsys.readouterr().out.count("increased risk of being interrupted") == 1


def test_an_aws_that_gives_no_token_is_not_watched(metadata):
    aws(metadata, tokens=False)
    assert preemption.here(rounds=1) is None


def test_an_aws_without_tokens_is_watched_without_them(metadata):
    metadata.answers = {("GET", AWS + "instance-id"): "i-0123456789abcdef0"}
    assert isinstance(preemption.here(), Aws)


GCP = "/computeMetadata/v1/instance/"


def test_gcp_says_preempted_or_names_its_maintenance(metadata):
    def flavoured(text):
        return lambda headers: text if headers["Metadata-Flavor"] == "Google" else 403

    metadata.answer_headers = {"Metadata-Flavor": "Google"}
    metadata.answers = {
        ("GET", GCP + "id"): flavoured("42"),
        ("GET", GCP + "preempted"): flavoured("FALSE"),
        ("GET", GCP + "maintenance-event"): flavoured("NONE"),
    }
    cloud = preemption.here()
    assert isinstance(cloud, Gcp)
    assert cloud.notice() is None
    metadata.answers[("GET", GCP + "maintenance-event")] = "MIGRATE_ON_HOST_MAINTENANCE"
    assert cloud.notice() is None
    metadata.answers[("GET", GCP + "maintenance-event")] = "TERMINATE_ON_HOST_MAINTENANCE"
    assert cloud.notice().what == "terminated for maintenance"
    metadata.answers[("GET", GCP + "preempted")] = "TRUE"
    assert cloud.notice() == Notice("preempted", 30)


@pytest.mark.parametrize("nonsense", ["<html>log in first</html>", "{", "[]", '"x"', "\0\xff"])
def test_a_server_that_talks_nonsense_is_not_a_cloud(metadata, nonsense):
    paths = [AWS + "instance-id", GCP + "id"]
    metadata.answers = {("GET", path): nonsense for path in paths}
    assert preemption.here(rounds=2) is None


def test_nonsense_in_place_of_a_notice_is_mentioned_once_and_asked_again(metadata, capsys):
    _, guarded = aws(metadata)
    cloud = preemption.here()
    texts = iter(["not json", "[1]", "{}", json.dumps({"action": "stop", "time": "soon"})])
    sound = json.dumps({"action": "stop", "time": in_seconds(0)})
    metadata.answers[ACTION] = lambda headers: guarded(next(texts, sound))(headers)
    assert next(preemption.notices(cloud)) == Notice("spot instance: stop", 0)
    assert capsys.readouterr().out.count("invalid answer") == 1


def test_a_server_that_hangs_is_given_up(metadata, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(preemption, "ANSWER_S", 0.1)
    metadata.answers = {("GET", AWS + "instance-id"): lambda headers: released.wait(60) and 404}
    try:
        assert preemption.here(rounds=1) is None
    finally:
        released.set()


def test_without_a_cloud_it_says_so_and_ends(monkeypatch, capsys):
    monkeypatch.setenv("DISENTUNE_METADATA_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(preemption, "POLL_S", 0)
    preemption.main()
    assert capsys.readouterr().out == (
        "disentune.cluster.preemption: no metadata server of a cloud answers on this machine; nothing to watch\n"
    )


def test_only_the_standard_library_is_loaded():
    heavy = "('torch', 'ray', 'numpy', 'pydantic')"
    code = f"import sys, disentune.cluster.preemption; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- Ray's nodes


def process(folder, number, *words):
    (folder / str(number)).mkdir()
    (folder / str(number) / "cmdline").write_bytes("\0".join(words).encode() + b"\0")


def test_nodes_of_this_machine_are_found_by_how_they_were_started(tmp_path):
    process(tmp_path, 1, "/x/ray/core/src/ray/raylet/raylet", "--node_id=abc", "--gcs-address=10.0.0.1:6379", "--x")
    process(tmp_path, 2, "/usr/bin/python", "--node_id=def", "--gcs-address=10.0.0.1:6379")
    process(tmp_path, 3)
    (tmp_path / "4").mkdir()
    assert preemption.raylets(tmp_path) == {Raylet("abc", "10.0.0.1:6379")}


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """What was run instead of `ray`, and how it ends."""
    monkeypatch.setattr(notice.tempfile, "gettempdir", lambda: str(tmp_path))
    ran = []

    def run(command, **options):
        ran.append(command)
        assert preemption.notice_path("abc").exists(), "the workers are told first"
        if isinstance(run.ending, Exception):
            raise run.ending
        return subprocess.CompletedProcess(command, run.ending, "", "Error: it is the head")

    run.ending = 0
    monkeypatch.setattr(preemption.subprocess, "run", run)
    return ran, run


def test_a_notice_reaches_the_workers_and_ray(commands, metadata, monkeypatch, capsys):
    ran, _ = commands
    _, guarded = aws(metadata)
    metadata.answers[ACTION] = guarded(json.dumps({"action": "terminate", "time": in_seconds(100)}))
    nodes = iter([set(), {Raylet("abc", "10.0.0.1:6379")}])  # Ray starts after the notice
    monkeypatch.setattr(preemption, "raylets", lambda: next(nodes))
    preemption.main()
    [command] = ran
    assert Path(command[0]).name == "ray"
    assert command[1:7] == ["drain-node", "--address", "10.0.0.1:6379", "--node-id", "abc", "--reason"]
    assert command[7] == "DRAIN_NODE_REASON_PREEMPTION"
    assert 90 <= int(command[-1]) <= 100
    assert "node abc is draining: spot instance: terminate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (1, "Error: it is the head"),
        (OSError("no such file"), "no such file"),
        (subprocess.TimeoutExpired("ray", 30), "30"),
    ],
)
def test_nodes_that_cannot_be_drained_are_left_by_their_workers_all_the_same(
    commands, capsys, monkeypatch, ending, text
):
    _, run = commands
    run.ending = ending
    cloud = SimpleNamespace(name="a cloud", notice=lambda: Notice("preempted", 30))
    monkeypatch.setattr(preemption, "here", lambda: cloud)
    monkeypatch.setattr(preemption, "raylets", lambda: {Raylet(id, "10.0.0.1:6379") for id in ("abc", "def")})
    preemption.main()
    said = capsys.readouterr().out
    assert "node abc could not be drained" in said
    assert "node def could not be drained" in said
    assert text in said

import json
import os
import shutil
import subprocess
import types
from contextlib import nullcontext
from dataclasses import replace

import pytest

from disentune.cluster import submission, token, verify
from disentune.cluster.verify import Node, Question, Verdict, answer, notes_of, problems_of
from disentune.driver import ray_internals
from disentune.environment import versions
from disentune.errors import ConfigError
from processes import patience_s
from ray_head import BIN, free_ports, ray_head, ray_node
from simulator import sweep_file

VERSIONS = {"python": "3.11.7", "disentune": "0.1.0", "ray": "2.60.0", "torch": "2.13.0+cpu", "commit": "abc"}
H, W, V = ("a" * 56, "b" * 56, "c" * 56)
"""What Ray takes for the id of a node."""
HEAD = Node(H, "head", "10.0.0.1", is_head=True, cpus=0, gpus=0, versions=VERSIONS)
WORKER = Node(W, "worker", "10.0.0.2", is_head=False, cpus=4, gpus=0, versions=VERSIONS)


def problem(**changes) -> str:
    """The only one of a cluster in which this is so of the worker."""
    (found,) = problems_of([HEAD, replace(WORKER, id=V, name="other"), replace(WORKER, **changes)])
    return found


def having(**changes) -> dict:
    return {"versions": VERSIONS | changes}


# ---- what is wrong


def test_a_cluster_of_equals_has_no_problem():
    assert problems_of([HEAD, WORKER, replace(WORKER, gpus=1, seen_gpus=1, clock_s=-3.0)]) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (having(disentune="0.2.0"), "has disentune 0.2.0, but head has 0.1.0"),
        (having(disentune=None), "has disentune None, but head has 0.1.0"),
        (having(ray="2.59.0"), "has ray 2.59.0, but head has 2.60.0"),
        (having(torch="2.12.0+cpu"), "has torch 2.12.0, but other has 2.13.0"),
        (having(python="3.12.7"), "has python 3.12, but head has 3.11"),
        (having(commit="abd"), "has commit abd, but head has abc"),
        ({"storage": "does not see it"}, "does not see it; every node must see the same storage"),
        ({"gpus": 2.0, "seen_gpus": 1}, "Ray offers 2 GPUs, but torch sees 1"),
        ({"clock_s": 31.0}, "its clock is 31 s ahead of the head's"),
        ({"clock_s": -11.0}, "its clock is 11 s behind the head's"),
        ({"trouble": "did not answer within 90 s"}, "did not answer within 90 s; run `ray status`"),
    ],
)
def test_each_problem_says_where_and_what(changes, text):
    found = problem(**changes)
    assert found.startswith(f"worker (10.0.0.2): {text}")
    assert "\n" not in found


def test_the_one_that_differs_is_named_wherever_it_stands():
    odd, others = replace(WORKER, **having(disentune="0.0.9", torch="2.5.0")), [replace(WORKER, id=V), HEAD]
    for nodes in ([odd, *others, replace(WORKER, id="d")], [*others, replace(WORKER, id="d"), odd]):
        found = problems_of(nodes)
        assert [text.split(";")[0].partition("has ")[2] for text in found] == [
            f"disentune 0.0.9, but {nodes[1].name if nodes[0] is odd else nodes[0].name} has 0.1.0",
            "torch 2.5.0, but worker has 2.13.0",
        ]
    assert "has ray 2.59.0, but head has" in problems_of([HEAD, replace(WORKER, **having(ray="2.59.0"))])[0]


@pytest.mark.parametrize("changes", [having(torch="2.13.0+cu128"), having(python="3.11.9"), having(commit=None)])
def test_builds_of_one_version_are_equal(changes):
    assert problems_of([HEAD, WORKER, replace(WORKER, **changes)]) == []


def test_what_only_trials_need_is_not_asked_of_a_head_that_runs_none():
    bare = replace(HEAD, missing=["dsprites"], versions=VERSIONS | {"torch": "2.5.0"})
    source = types.SimpleNamespace(key="dsprites", command="disentune data prepare dsprites")
    assert problems_of([bare, WORKER], [source]) == []
    found = problems_of([replace(bare, cpus=1), replace(WORKER, missing=["dsprites"])], [source])
    assert [text.split(":")[0] for text in found] == ["worker (10.0.0.2)", "head (10.0.0.1)", "worker (10.0.0.2)"]
    assert found[2].endswith("data set dsprites is not prepared; run on this node: disentune data prepare dsprites")


def test_every_problem_is_named_at_once():
    wrong = replace(WORKER, storage="wrong", clock_s=99.0, gpus=1, **having(ray="2", torch="2", disentune="2"))
    assert len(problems_of([HEAD, replace(WORKER, name="other"), wrong])) == 6


def test_what_may_not_be_meant_is_noted():
    assert notes_of([HEAD, WORKER]) == []
    assert "no node can run trials now" in notes_of([HEAD])[0]
    assert "the head runs trials too" in notes_of([replace(HEAD, cpus=2), WORKER])[0]
    assert notes_of([replace(HEAD, cpus=2)]) == []  # there is no one else
    assert "torch sees 2 GPUs, but Ray offers 1" in notes_of([HEAD, replace(WORKER, gpus=1, seen_gpus=2)])[0]


def test_a_verdict_survives_its_journey():
    verdict = Verdict([HEAD, replace(WORKER, free_gb=3.5, missing=["dsprites"])], ["a problem"], ["a note"])
    assert Verdict.from_json(json.loads(json.dumps(verdict.as_json()))) == verdict


# ---- what a node says, and Ray


@pytest.fixture
def question(tmp_path):
    asked = Question(str(tmp_path), "nonce")
    with verify._marked(asked) as trouble:
        assert trouble == ""
        yield asked


def test_a_node_that_sees_the_storage_is_seen_in_it(question):
    said = answer(question, W)
    assert (said["storage"], said["versions"], said["missing"]) == ("", versions(), [])
    assert said["free_gb"] > 0
    assert verify._seen_from_here(WORKER, question) == WORKER
    unseen = verify._seen_from_here(replace(WORKER, id="x"), question)
    assert unseen.storage == f"wrote to {question.storage}, but the head does not see the file"


def test_marks_are_gone_afterwards(tmp_path):
    with verify._marked(asked := Question(str(tmp_path), "nonce")):
        answer(asked, W)
        assert any(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_another_folder_at_the_same_place_is_reported(question, tmp_path):
    (tmp_path / ".verify-nonce" / "asked").write_text("of another")
    assert "has a different" in answer(question, W)["storage"]
    shutil.rmtree(tmp_path / ".verify-nonce")
    assert "not shared, or not mounted on this node" in answer(question, W)["storage"]
    (tmp_path / ".verify-nonce").touch()
    assert "cannot use" in answer(question, W)["storage"]


def test_a_storage_that_cannot_be_written_is_one_problem_and_not_one_of_each_node(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    ray = FakeRay([HEAD, WORKER])
    found = ray.verified(monkeypatch, storage=str(tmp_path / "file" / "in")).problems
    assert [text.split(":")[0] for text in found] == ["storage"]


def test_data_that_is_not_prepared_is_named(monkeypatch):
    sources = tuple(types.SimpleNamespace(key=key) for key in ("a", "b", "c"))
    monkeypatch.setattr(verify, "prepared", lambda asked, root: {"b"} if root == "/data" else set())
    assert answer(Question(None, "", sources, "/data"), "w")["missing"] == ["a", "c"]


class FakeRay:
    """Answers come at once, in this process; a node may be silent, or break."""

    def __init__(self, nodes, silent=(), broken=(), joining=0, late_s=0.0, local=False):
        self.local = local
        self.there, self.silent, self.broken, self.joining, self.late_s = nodes, silent, broken, joining, late_s
        self.cancelled = []

    def get_runtime_context(self):
        return types.SimpleNamespace(gcs_address="10.0.0.1:6379")

    def nodes(self):
        alive = self.there[: len(self.there) - self.joining]
        self.joining = max(0, self.joining - 1)
        return [
            {"NodeID": node.id, "NodeManagerHostname": node.name, "NodeManagerAddress": node.ip, "Alive": node in alive,
             "Resources": {"CPU": node.cpus, "GPU": node.gpus} | ({ray_internals.HEAD: 1.0} if node.is_head else {})}
            for node in self.there
        ]  # fmt: skip

    def remote(self, **options):
        assert options == {"num_cpus": 0, "max_retries": 0}
        return lambda function: types.SimpleNamespace(options=lambda **how: self._pinned(function, **how))

    def _pinned(self, function, scheduling_strategy):
        assert not scheduling_strategy.soft
        return types.SimpleNamespace(remote=lambda question, id: (function, question, scheduling_strategy.node_id))

    def wait(self, waiting, timeout):
        done = [one for one in waiting if one[2] not in self.silent][:1]
        return done, [one for one in waiting if one not in done]

    def get(self, reference):
        function, question, node_id = reference
        if node_id in self.broken:
            raise RuntimeError("a long story\nModuleNotFoundError: No module named 'disentune.cluster.verify'\n")
        return function(question, node_id) | ({"time": 1.0} if self.late_s else {})

    def cancel(self, reference, force):
        self.cancelled.append(reference[2])

    def verified(self, monkeypatch, **arguments):
        answer(Question(None, ""), "warm")  # imports torch, which may take longer than a node has to answer
        monkeypatch.setattr(verify, "ANSWER_S", 0.5 if self.silent else 60.0)
        monkeypatch.setattr(verify, "JOIN_S", 0.5)
        monkeypatch.setattr(verify, "joined", lambda address: nullcontext(self))
        monkeypatch.setattr(verify, "is_started_by_a_program", lambda: self.local)
        return verify.verify("auto", **arguments)


def test_every_node_is_asked_and_the_head_comes_first(monkeypatch, tmp_path):
    verdict = FakeRay([WORKER, HEAD]).verified(monkeypatch, storage=str(tmp_path))
    assert [node.name for node in verdict.nodes] == ["head", "worker"]
    assert verdict.problems == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_node_that_is_silent_or_broken_does_not_hide_the_others(monkeypatch, tmp_path):
    ray = FakeRay([HEAD, WORKER, replace(WORKER, id=V, name="other")], silent=[W], broken=[V])
    verdict = ray.verified(monkeypatch, storage=str(tmp_path))
    troubles = {node.name: node.trouble for node in verdict.nodes}
    assert troubles == {
        "head": "",
        "worker": "did not answer within 0.5 s",
        "other": "cannot answer: ModuleNotFoundError: No module named 'disentune.cluster.verify'",
    }
    assert len(verdict.problems) == 2
    assert ray.cancelled == [W]


def test_the_address_that_was_reached_is_part_of_the_verdict(monkeypatch):
    assert FakeRay([HEAD]).verified(monkeypatch).address == "10.0.0.1:6379"


def test_a_ray_that_a_program_started_for_itself_is_not_a_cluster(monkeypatch):
    with pytest.raises(ConfigError, match=r"--address auto: the Ray at 10\.0\.0\.1:6379 is not a cluster"):
        FakeRay([HEAD], local=True).verified(monkeypatch)


def test_a_token_that_others_can_read_is_noted(monkeypatch, tmp_path):
    path = tmp_path / "auth_token"
    path.write_text("made for a test")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    for mode, expected in ((0o600, []), (0o640, [path]), (0o604, [path])):
        path.chmod(mode)
        assert FakeRay([HEAD]).verified(monkeypatch).notes[1:] == [token.warning_about(one) for one in expected]
    monkeypatch.setenv("RAY_AUTH_TOKEN", "in a variable")
    assert list(token.token_notes()) == []


def test_a_clock_that_is_off_is_measured_from_here(monkeypatch):
    (node,) = FakeRay([HEAD], late_s=1.0).verified(monkeypatch).nodes
    assert node.clock_s < -1e9
    (node,) = FakeRay([HEAD]).verified(monkeypatch).nodes
    assert node.clock_s == 0


@pytest.mark.slow
def test_nodes_are_waited_for_and_those_that_never_come_are_counted(monkeypatch):
    said = []
    verdict = FakeRay([HEAD, WORKER], joining=1).verified(monkeypatch, wanted=2, say=said.append)
    assert (verdict.problems, len(verdict.nodes)) == ([], 2)
    assert said == ["1 of 2 nodes have joined; waiting up to 0.5 s"]
    (found,) = FakeRay([HEAD, WORKER]).verified(monkeypatch, wanted=3).problems
    assert found.startswith("cluster: 2 of 3 nodes have joined in 0.5 s; `ray status` lists them")


# ---- the command


def test_a_verdict_is_shown_and_decides_the_exit_code(disentune, monkeypatch):
    verdict = Verdict([HEAD, replace(WORKER, free_gb=10)], [], ["a [note]"], "10.0.0.1:6379")
    monkeypatch.setattr(verify, "verify", lambda *arguments: verdict)
    code, said, _ = disentune("cluster", "verify")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == ["cluster", "node", "head", "worker", "note:", "2"]
    assert said.startswith("cluster at 10.0.0.1:6379\n")
    assert "10 GB free" in said
    bad = replace(WORKER, trouble="did not answer")
    monkeypatch.setattr(verify, "verify", lambda *arguments: Verdict([bad], ["worker: silent"], []))
    code, said, _ = disentune("cluster", "verify")
    assert code == 2
    assert said.splitlines()[-1] == "problem: worker: silent"
    code, said, _ = disentune("cluster", "verify", "--json")
    assert (code, json.loads(said)["problems"]) == (2, ["worker: silent"])


def test_from_afar_the_same_is_asked_of_the_head(disentune, monkeypatch, tmp_path):
    sweep_file(tmp_path)
    verdict, asked = Verdict([HEAD], ["a problem"], []), []

    def run_command(client, arguments, sweep, working_dir):
        asked.append((arguments, sweep.name))
        return "job"

    def follow(client, id, write, say):
        for line in ["1 of 2 nodes have joined", *json.dumps(verdict.as_json(), indent=1).splitlines()]:
            write(line)
        return 2

    monkeypatch.setattr(submission, "connected", lambda address: None)
    monkeypatch.setattr(submission, "run_command", run_command)
    monkeypatch.setattr(submission, "follow", follow)
    given = ["--nodes", "2", "--storage", "/shared", "--sweep", "tiny.yaml"]
    code, said, told = disentune("cluster", "verify", "--address", "http://head:8265", *given)
    assert (code, said.splitlines()[-1], told) == (2, "problem: a problem", "1 of 2 nodes have joined\n")
    ((arguments, name),) = asked
    assert arguments == ["cluster", "verify", "--address", "auto", "--json", *given[:5], submission.SWEEP_FILE]
    assert name == "tiny"


def test_a_missing_cluster_is_reported(disentune, monkeypatch, tmp_path):
    (port,) = free_ports(1)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    import ray

    def nobody(**arguments):
        os.write(2, b"gcs_client.cc: noise\n")
        raise ConnectionError("Could not find any running Ray instance.\nMore.")

    monkeypatch.setattr(ray, "init", nobody)
    code, _, said = disentune("cluster", "verify")
    assert code == 2
    assert said.startswith("--address auto: no Ray cluster answers there (Could not find any running Ray")
    assert (said.count("\n"), "noise" in said) == (1, False)

    def refused(**arguments):
        os.write(2, b"gcs_client.cc: Unauthenticated: InvalidAuthToken\n")
        raise ConnectionError("Failed to connect to Ray cluster")

    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(ConfigError, match="the cluster refuses this machine's token"):
        verify.verify()


# ---- on real nodes


def verified(head, folder, *arguments: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [BIN / "disentune", "cluster", "verify", *arguments], cwd=folder, env=head.environment | environment,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patience_s(),
    )  # fmt: skip
    return done.returncode, done.stdout


LIAR = """
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda name: "0.0.9" if name == "disentune" else real(name)
"""


@pytest.mark.ray
@pytest.mark.long
def test_a_real_cluster_is_checked_node_by_node(tmp_path):
    """A head that runs no trials, a sound node, and one that has another version, another storage and a GPU that is
    not there."""
    storage = tmp_path / "storage"
    storage.mkdir()
    (tmp_path / "sitecustomize.py").write_text(LIAR)
    sprites = [("{name: xysquares, image_size: 8, square_size: 2, grid_size: 3, squares: 2}", "{name: dsprites}"),
               ("dataset.spacing: 1, ", ""), ("dataset.spacing: 2, ", "")]  # fmt: skip
    path = sweep_file(tmp_path)
    for old, new in sprites:
        path.write_text(path.read_text().replace(old, new))
    elsewhere = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {storage} && exec "$@"', "sh"]
    if subprocess.run([*elsewhere, "true"], capture_output=True).returncode:
        pytest.skip("only root can give a process another folder at the same place")
    with ray_head(cpus=0) as head, ray_node(head):
        here = {"RAY_ADDRESS": head.gcs}
        code, said = verified(head, tmp_path, "--nodes", "2", "--storage", str(storage), **here)
        assert code == 0, said
        assert said.splitlines()[-1] == "2 nodes, all checks passed"
        assert f":{head.gcs.partition(':')[2]}\n" in said, "the port of the address that was reached"
        with ray_node(head, *elsewhere, gpus=1, PYTHONPATH=str(tmp_path)):
            options = ["--nodes", "3", "--storage", str(storage), "--sweep", "tiny.yaml", "--json"]
            code, said = verified(head, tmp_path, *options, "--address", head.dashboard, DISENTUNE_DATA="")
        verdict = Verdict.from_json(json.loads(said[said.index("{") :]))
        texts = "\n".join(verdict.problems)
        assert (code, len(verdict.nodes)) == (2, 3), said
        assert f"has disentune 0.0.9, but {verdict.nodes[0].name} has {versions()['disentune']}" in texts
        assert texts.count("not shared, or not mounted on this node") == 1
        assert texts.count("Ray offers 1 GPUs, but torch sees 0") == 1
        assert texts.count("data set dsprites is not prepared") == 2
        assert len(verdict.problems) == 5
        assert list(storage.iterdir()) == []


@pytest.mark.ray
@pytest.mark.long
def test_a_wrong_token_is_reported_in_one_line(tmp_path):
    with ray_head(token="t" * 64) as head:
        wrong = {"RAY_ADDRESS": head.gcs, "RAY_AUTH_TOKEN": "w" * 64}
        code, said = verified(head, tmp_path, **wrong)
    assert code == 2
    assert "the cluster refuses this machine's token" in said
    assert said.count("\n") == 1

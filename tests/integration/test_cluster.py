"""A cluster for real: three hosts with their own network, processes, files and sshd (tests/hosts.py), launched by
`ray up` from cluster/onprem.yaml. Hosts die, cables are pulled out, the driver is killed; no bit of the table changes.

The tests build on each other, from the first `ray up` that fails to the `ray down` that leaves nothing.
"""

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
import yaml

from disentune.results.tables import read, write_parquet
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from hosts import HEAD, LAPTOP, ONE, SERVERS, TWO, WORKERS, Hosts, missing
from processes import patience_s, wait_until
from simulator import simulate, sweep_file, table

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(missing()), reason=missing())]

REPOSITORY = Path(__file__).parents[2]
FILE = "/shared/lab.yaml"
STORAGE = "/shared/runs"  # what cluster/onprem.yaml says, too
URL = "http://127.0.0.1:8265"
LITTLE = " --object-store-memory=100000000"
WATCH = "from disentune.cluster import preemption as p; p.POLL_S = 0.5; p.main()"  # not to be overtaken by short trials
# Six trials of some seconds each: long enough to be met in the middle.
CHANGES = [
    "seeds=1", "training.steps=1200", "training.log_every=300", "evaluation.every=300", "checkpoint.every_steps=50",
]  # fmt: skip
SETS = " ".join(f"--set {change}" for change in CHANGES)


class Lab:
    """The laptop's view of the hosts."""

    def __init__(self, hosts: Hosts):
        self.hosts = hosts

    def write_file(self, **provider: object) -> None:
        """cluster/onprem.yaml with the hosts' addresses and resources; the programs are there already."""
        config = yaml.safe_load((REPOSITORY / "cluster" / "onprem.yaml").read_text())
        address = self.hosts.address
        config["provider"] |= {"head_ip": address(HEAD), "worker_ips": [address(name) for name in WORKERS], **provider}
        config["auth"]["ssh_user"] = "root"
        installing = [command for command in config["setup_commands"] if "-venv" in command and "cat >" not in command]
        assert len(installing) == 2
        config["setup_commands"] = [
            f"ln -sfn {sys.prefix} ~/disentune-venv",
            *(command for command in config["setup_commands"] if command not in installing),
        ]
        _append(config["head_start_ray_commands"], LITTLE)
        _append(config["worker_start_ray_commands"], f" --num-cpus=1{LITTLE}")
        (self.hosts.shared / "lab.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def ray(self, command: str, start_s: int = 0) -> tuple[int, str]:
        """A command of Ray's on the laptop, as the file's header gives it."""
        start_s = start_s or int(patience_s(60))
        settings = f"RAY_AUTH_MODE=token RAY_UP_enable_autoscaler_v2=0 AUTOSCALER_NODE_START_WAIT_S={start_s}"
        return self.hosts.run(LAPTOP, f"cd {REPOSITORY} && {settings} ray {command}")

    def verify(self, options: str) -> tuple[int, str]:
        return self.hosts.run(HEAD, f"disentune cluster verify {options}")

    def drive(self, options: str) -> tuple[int, str]:
        """The sweep by hand, on the head."""
        return self.hosts.run(HEAD, f"disentune run /shared/tiny.yaml --address auto {SETS} {options}")

    def submit(self, name: str) -> subprocess.Popen[str]:
        command = f"disentune submit /shared/tiny.yaml --address {URL} --storage {STORAGE}/{name} --name {name} {SETS}"
        return self.hosts.popen(LAPTOP, f"RAY_AUTH_MODE=token {command}")

    def wait(self, condition: Callable[[], object], what: str, job: subprocess.Popen[str]) -> None:
        """For something that a job brings about."""
        wait_until(lambda: condition() or job.poll() is not None, what)
        assert job.poll() is None or condition(), f"the job ended before {what}:\n{job.communicate()[0]}"

    def trial_on(self, run: Run, host: str, job: subprocess.Popen[str]) -> tuple[str, Status]:
        """A trial that trains on a host and has a checkpoint to go on from."""
        self.wait(lambda: attempts(run, host), f"a trial with a checkpoint on host {host}", job)
        return attempts(run, host)[0]

    def run(self, name: str) -> Run:
        """A run as it is on the shared disk, in a storage of its own: no run takes over trials of another."""
        return Run(self.hosts.shared / "runs" / name / "tiny" / name)

    def nodes(self) -> int:
        """How many are alive, by Ray's own count."""
        code, output = self.hosts.run(HEAD, 'python -c "import ray; from ray.util.state import list_nodes as l; '
                                            "print(len([n for n in l() if n.state == 'ALIVE']))\"")  # fmt: skip
        return int(output.split()[-1]) if code == 0 else 0


class Metadata:
    """AWS's metadata server as a host sees it; once `taken` is set, the host will be taken away in half a minute."""

    def __init__(self, address: str):
        self.taken = threading.Event()
        self.server = ThreadingHTTPServer((address, 0), self._handler())
        self.url = f"http://{address}:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)

    def _handler(cloud) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = {"/latest/meta-data/instance-id": "i-0123456789abcdef0"}
                if cloud.taken.is_set():
                    end = datetime.now(UTC) + timedelta(seconds=30)
                    notice = {"action": "terminate", "time": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
                    known["/latest/meta-data/spot/instance-action"] = json.dumps(notice)
                self.send_response(200 if self.path in known else 404)
                self.end_headers()
                self.wfile.write(known.get(self.path, "").encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def __enter__(self) -> "Metadata":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def _append(commands: list[str], options: str) -> None:
    """Gives options to the one command that starts Ray."""
    (at,) = [number for number, command in enumerate(commands) if "ray start" in command]
    commands[at] += options


def attempts(run: Run, host: str) -> list[tuple[str, Status]]:
    """Trials that train on a host and have a checkpoint to go on from."""
    found = [(trial.path.name, trial.status()) for trial in run.trials()]
    return [(id, status) for id, status in found if (status.state, status.node) == ("running", host) and status.step]


def nothing_runs(hosts: Hosts) -> bool:
    return not any(hosts.processes(name) for name in SERVERS)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Hosts() as hosts:
        made = Lab(hosts)
        hosts.must(LAPTOP, "mkdir -p ~/.ray && ray get-auth-token --generate > /dev/null")
        sweep_file(hosts.shared)
        yield made
    assert hosts.left() == []


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Lab:
    """After `ray up`, with all hosts in, and the dashboard's door on the laptop."""
    lab.write_file()
    code, output = lab.ray(f"up -y --no-config-cache {FILE}")
    assert code == 0, output
    wait_until(lambda: lab.nodes() == len(SERVERS), "all hosts to join")
    lab.hosts.popen(LAPTOP, f"RAY_AUTH_MODE=token ray dashboard --no-config-cache {FILE}")
    wait_until(lambda: lab.hosts.run(LAPTOP, "echo > /dev/tcp/127.0.0.1/8265")[0] == 0, "the dashboard")
    return lab


@pytest.mark.long
def test_a_head_that_does_not_answer_ends_ray_up(lab):
    lab.write_file(head_ip=f"{lab.hosts.network}.99")
    code, output = lab.ray(f"up -y --no-config-cache {FILE}", start_s=3)
    assert code != 0
    assert "SSH still not available" in output
    assert nothing_runs(lab.hosts)


@pytest.mark.long
def test_a_key_that_no_host_knows_ends_ray_up(lab):
    lab.write_file()
    lab.hosts.must(
        LAPTOP, "cd ~/.ssh && mkdir aside && mv id_ed25519* aside && ssh-keygen -q -t ed25519 -N '' -f id_ed25519"
    )
    code, output = lab.ray(f"up -y --no-config-cache {FILE}", start_s=3)
    lab.hosts.must(LAPTOP, "cd ~/.ssh && mv aside/* . && rmdir aside")
    assert code != 0
    assert "Permission denied (publickey" in output, output
    assert nothing_runs(lab.hosts)


def test_every_host_joins_and_verify_agrees(cluster):
    code, output = cluster.ray(f"exec --no-config-cache {FILE} 'disentune cluster verify --nodes 3'")
    assert code == 0, output
    assert all(name in output for name in SERVERS)


@pytest.fixture(scope="module")
def calm(lab: Lab) -> Run:
    """The same sweep in one process, undisturbed; in a storage of its own, so that no run takes its trials over."""
    run = Run(lab.hosts.shared / "calm" / "tiny" / "calm")
    simulate(run, lab.hosts.shared / "tiny.yaml", np.random.default_rng(0), overrides=CHANGES)
    write_parquet(read(run))
    return run


def assert_same_table(lab: Lab, run: Run, calm: Run) -> None:
    assert table(run) == table(calm)
    assert run.parquet_path.read_bytes() == calm.parquet_path.read_bytes()
    paths = [f"/shared/{one.path.relative_to(lab.hosts.shared)}" for one in (run, calm)]
    shown = [lab.hosts.must(LAPTOP, f"disentune results {path} --json") for path in paths]
    assert json.loads(shown[0]) == json.loads(shown[1])


def faults(run: Run) -> Counter[str]:
    """What ended attempts, over all trials, by cause."""
    return sum((Counter(trial.status().faults) for trial in run.trials()), Counter())


@pytest.mark.long
def test_a_sweep_outlives_a_host_and_its_driver(cluster, calm):
    hosts, run = cluster.hosts, cluster.run("killed")
    job = cluster.submit("killed")
    lost, before = cluster.trial_on(run, ONE, job)
    hosts.kill(ONE)
    cluster.wait(lambda: run.trial(lost).status().node == TWO, "the trial to go on elsewhere", job)
    assert run.trial(lost).status().step >= before.step
    hosts.must(HEAD, "pkill -KILL -f '[d]isentune.cli run'")
    asked = hosts.popen(HEAD, "disentune cluster verify --nodes 3")
    output, _ = job.communicate(timeout=patience_s())
    assert job.returncode == 0, output
    assert "supervisor: the driver" in output
    assert_same_table(cluster, run, calm)
    assert set(faults(run)) <= {"node"}
    verdict, _ = asked.communicate(timeout=patience_s())
    assert asked.returncode == 2, verdict
    assert "2 of 3 nodes have joined" in verdict


@pytest.mark.long
def test_a_host_that_was_off_comes_back_by_itself(cluster):
    cluster.hosts.start(ONE)
    wait_until(lambda: cluster.nodes() == len(SERVERS), "the host to join again")


def assert_outlives(
    lab: Lab, calm: Run, name: str, disturb: Callable[[Hosts], None], mend: Callable[[Hosts], None]
) -> None:
    """A trial of host TWO goes on elsewhere when the host cannot be reached; mended, the host disturbs nobody and is
    used again."""
    run, job = lab.run(name), lab.submit(name)
    lost, before = lab.trial_on(run, TWO, job)
    disturb(lab.hosts)
    lab.wait(lambda: run.trial(lost).status().node == ONE, "the trial to go on elsewhere", job)
    assert run.trial(lost).status().step >= before.step
    mend(lab.hosts)
    output, _ = job.communicate(timeout=patience_s())
    assert job.returncode == 0, output
    assert_same_table(lab, run, calm)
    assert set(faults(run)) <= {"node"}
    wait_until(lambda: lab.nodes() == len(SERVERS), "the host to join again")


@pytest.mark.long
def test_a_sweep_outlives_a_cable_that_is_pulled_out(cluster, calm):
    assert_outlives(cluster, calm, "cut", lambda hosts: hosts.cut(TWO), lambda hosts: hosts.mend(TWO))


@pytest.mark.long
@pytest.mark.parametrize(("sender", "receiver"), [(TWO, HEAD), (HEAD, TWO)], ids=["to the head", "from the head"])
def test_a_sweep_outlives_a_network_that_loses_what_is_sent_in_one_direction(cluster, calm, sender, receiver):
    assert_outlives(
        cluster, calm, f"lost-to-{receiver}",
        lambda hosts: hosts.mute(sender, to=receiver), lambda hosts: hosts.unmute(sender, to=receiver),
    )  # fmt: skip


@pytest.mark.long
def test_a_sweep_outlives_a_host_that_is_suspended_and_comes_back(cluster, calm):
    """Its worker wakes up in the middle of a trial that another host has taken over."""
    assert_outlives(cluster, calm, "suspended", lambda hosts: hosts.suspend(TWO), lambda hosts: hosts.continue_(TWO))


@pytest.mark.long
def test_another_version_on_one_host_is_named(cluster):
    """The host's files are its own: nothing of this machine's changes."""
    metadata = distribution("disentune")._path / "METADATA"  # type: ignore[attr-defined]
    cluster.hosts.must(TWO, f"cp {metadata} /tmp/kept && sed -i 's/^Version: .*/Version: 9.9.9/' {metadata}")
    code, output = cluster.verify("--nodes 3")
    cluster.hosts.must(TWO, f"cp /tmp/kept {metadata}")
    assert code == 2, output
    assert f"two ({cluster.hosts.address(TWO)}): has disentune 9.9.9, but head has" in output


@pytest.mark.long
def test_a_gpu_that_no_host_has_is_not_waited_for(cluster):
    code, output = cluster.drive(f"--storage {STORAGE}/gpu --name gpu --set resources.gpu=1")
    assert code == 2, output
    assert "a trial needs 1 CPU and 1 GPU, but no node of the cluster has more than 1 CPU and 0 GPU" in output
    assert not [trial for trial in cluster.run("gpu").trials() if trial.status().attempts]


@pytest.mark.long
def test_a_storage_that_cannot_be_written_is_named(cluster):
    for name in SERVERS:
        cluster.hosts.must(name, "mkdir -p /shared/fixed && mount --bind /shared/fixed /shared/fixed")
        cluster.hosts.must(name, "mount -o remount,ro,bind /shared/fixed")
    code, output = cluster.drive("--storage /shared/fixed")
    assert code == 2, output
    assert "/shared/fixed" in output
    assert "Read-only file system" in output
    assert "Traceback" not in output


@pytest.mark.long
def test_a_storage_that_is_the_head_s_own_is_refused(cluster):
    code, output = cluster.drive("--storage /root/private")
    assert code == 2, output
    assert "/root/private/tiny/main is missing on one, two" in output
    assert "Traceback" not in output


@pytest.mark.long
def test_a_storage_that_is_full_is_named(cluster):
    cluster.hosts.run(HEAD, "dd if=/dev/zero of=/shared/small/filler bs=1k status=none")
    code, output = cluster.drive("--storage /shared/small")
    cluster.hosts.must(HEAD, "rm -r /shared/small/*")
    assert code == 2, output
    assert "No space left on device" in output
    assert "Traceback" not in output


@pytest.mark.long
def test_a_storage_that_fills_up_is_waited_for(cluster, calm):
    hosts, run = cluster.hosts, Run(cluster.hosts.shared / "small" / "tiny" / "main")
    log = hosts.folder / "homes" / HEAD / "small.log"
    options = f"--address auto --storage /shared/small {SETS}"
    job = hosts.popen(HEAD, f"disentune run /shared/tiny.yaml {options} > ~/small.log 2>&1")
    cluster.wait(lambda: log.exists() and "No space left on device" in log.read_text(), "a full disk", job)
    hosts.make_room()
    job.communicate(timeout=patience_s())
    assert job.returncode == 0, log.read_text()
    assert table(run) == table(calm)
    assert set(faults(run)) <= {"storage"}


@pytest.mark.long
def test_a_host_that_will_be_taken_away_hands_its_trial_on(cluster, calm):
    hosts, run = cluster.hosts, cluster.run("notice")
    with Metadata(hosts.here) as cloud:
        hosts.popen(ONE, f"DISENTUNE_METADATA_URL={cloud.url} RAY_AUTH_MODE=token python -c '{WATCH}'")
        job = cluster.submit("notice")
        cluster.trial_on(run, ONE, job)
        cloud.taken.set()
        output, _ = job.communicate(timeout=patience_s())
    assert job.returncode == 0, output
    left = re.findall(r"(\w+) left a node that is being reclaimed at step (\d+) .*: at step (\d+)", output)
    assert left, output
    for moved, checkpointed, trained in left:
        assert checkpointed == trained, "no step was lost"
        assert run.trial(moved).status().node == TWO
    assert_same_table(cluster, run, calm)
    assert set(faults(run)) == {"preempted"}


@pytest.mark.long
def test_ray_down_leaves_nothing(cluster):
    code, output = cluster.ray(f"down -y {FILE}")
    assert code == 0, output
    wait_until(lambda: nothing_runs(cluster.hosts), "Ray to end on all hosts")

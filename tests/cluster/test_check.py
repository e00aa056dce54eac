"""`disentune cluster check`: each rule has a file that breaks it alone, and all our own files pass."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from disentune.cli.app import app
from disentune.cluster.check import check, rules
from disentune.errors import ConfigError
from processes import patience_s, wait_until

ROOT = Path(__file__).parents[2]
FILES = ("cluster.yaml", "cluster/gcp.yaml", "cluster/onprem.yaml", "cluster/kuberay.yaml")
AWS, GCP, LOCAL, KUBERAY = FILES
SECRET = "5ecret0000000000000000000000000000000000"


@pytest.fixture(autouse=True)
def laptop(tmp_path, monkeypatch):
    """A checkout's folder with a token and a key, whoever runs the tests."""
    for name in ("src", "sweeps", "search_spaces"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("pyproject.toml", "README.md", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in (".ray/auth_token", ".ssh/id_ed25519"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("made for a test")
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rules, "python_here", lambda: "3.11")
    return tmp_path


def written(text, name="c.yaml"):
    Path(name).write_text(text)
    return Path(name)


def filled_in(file):
    return (ROOT / file).read_text().replace("CHANGE_ME", "mine")


def changed(file, old, new):
    text = filled_in(file)
    assert old in text, f"{file} no longer has {old!r}"
    return text.replace(old, new)


def found(text, sweep=None):
    """Level, line and text of everything that is found."""
    findings = check(written(text), sweep).findings
    return [(one.level, int(one.where.rpartition(":")[2]), one.text) for one in findings]


def line_of(text, fragment):
    return 1 + text[: text.index(fragment)].count("\n")


# ---- our own files


@pytest.mark.parametrize("file", FILES)
def test_our_files_have_nothing_wrong_but_what_is_to_be_filled_in(file):
    text = (ROOT / file).read_text()
    marked = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if "CHANGE_ME" in line and not line.lstrip().startswith("#")
    ]
    assert [(level, line) for level, line, _ in found(text)] == [("error", number) for number in marked]
    said = [text for _, _, text in found(filled_in(file), ROOT / "sweeps/quickstart.yaml")]
    assert [text[:34] for text in said] == ["resources: trials use no GPU, but "] * (file != LOCAL)


@pytest.mark.parametrize("file", [AWS, GCP])
def test_a_researcher_changes_five_lines(file):
    text = (ROOT / file).read_text()
    marks = [line.split()[1] for line in text.splitlines() if line.startswith("  # ") and line.split()[1].isdigit()]
    assert marks == list("12345")
    assert len(yaml.safe_load(text)["metadata"]) == 5


def test_our_files_have_the_versions_of_the_constraints():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    assert f"rayVersion: {pins['ray']}" in (ROOT / KUBERAY).read_text()
    assert f"rayproject/ray:{pins['ray']}-py311" in (ROOT / "cluster/Dockerfile").read_text()


def test_what_is_right_is_described_with_the_next_command():
    checked = check(written(filled_in(AWS)))
    assert checked.description == (
        "c.yaml: aws, head (no trials), gpu_spot (0 to 8, spot, 8 CPU, 1 GPU), gpu_on_demand (0 to 2, 8 CPU, 1 GPU); "
        "at most 10 GPUs"
    )
    assert checked.next_command == "RAY_UP_enable_autoscaler_v2=0 ray up -y c.yaml"
    assert check(written(filled_in(KUBERAY))).next_command == "kubectl apply -f c.yaml"


def test_fewer_machines_in_all_mean_fewer_gpus():
    assert check(written(changed(AWS, "all: &all 10", "all: &all 3"))).description.endswith("at most 3 GPUs")


# ---- one rule, one file that breaks it

START = "ray start --head"
ONE_EACH = [
    # Ray's own validator
    (AWS, "upscaling_speed: 1.0", "upscaling_sped: 1.0",
     "error", "upscaling_sped", "unknown key 'upscaling_sped'. Did you mean 'upscaling_speed'?"),
    (AWS, "has: &has {CPU: 8, GPU: 1}", "has: &has {CPU: 8, GPU: 1, TPU: 0.5}",
     "error", "has: &has", "whole numbers of resources, got 0.5"),
    (AWS, "head_node_type: head", "head_node_type: heads", "error", None, "`head_node_type` must be one of"),
    (AWS, "idle_timeout_minutes: 10", "idle_timeout_minutes: ten", "error", "idle_timeout", "must be a number"),
    (LOCAL, "  head_ip:", "  head_ipp:", "error", "provider:", "Ray cannot prepare this file"),
    # how it is written
    (AWS, "cache_stopped_nodes: false", "cache_stopped_nodes: off",
     "warning", "cache_stopped", "'off' is read as False"),
    (AWS, "upscaling_speed: 1.0", "upscaling_speed: 1.0\nupscaling_speed: 2.0", "error", "upscaling_speed: 2", "twice"),
    # versions
    (AWS, "~/disentune boto3", "~/disentune ray==2.9.0", "error", "~/disentune ray", "ray 2.9.0, but this"),
    (AWS, "~/disentune boto3", "~/disentune 'torch>=2'", "error", "'torch>=2'", "torch without an exact version"),
    (AWS, "~/disentune boto3", "~/disentune boto3\n  - pip install ray[tune]",
     "error", "ray[tune]", "ray without an exact version"),
    (AWS, "~/disentune boto3", "~/disentune ray@https://s3/ray-wheels/latest/ray-3.0.0.dev0.whl",
     "error", "ray-wheels", "nightly"),
    (AWS, "uv venv --python 3.11", "uv venv --python 3.12", "error", "--python 3.12", "Python 3.12, but 3.11 on"),
    (LOCAL, "python3.11 -m venv", "python3.10 -m venv", "error", "python3.10", "Python 3.10, but 3.11 on"),
    (AWS, "upscaling_speed: 1.0", "docker: {image: 'rayproject/ray:nightly-py311', container_name: ray}",
     "error", "docker:", "the image has Ray nightly"),
    (AWS, "upscaling_speed: 1.0", "docker: {image: 'rayproject/ray:2.60.0-gpu', container_name: ray}",
     "error", "docker:", "Python of unknown version"),
    (KUBERAY, "rayVersion: 2.60.0", "rayVersion: 2.59.0", "error", "rayVersion", "rayVersion is 2.59.0, but"),
    (AWS, "uv venv --python 3.11", "uv venv -p cpython3.12", "error", "cpython3.12", "Python 3.12, but 3.11 on"),
    (AWS, "~/disentune boto3", "~/disentune boto3 git+https://github.com/ray-project/ray",
     "error", "github.com", "a Ray of unknown version"),
    (LOCAL, "--constraint ~/disentune/constraints.txt", "", "warning", "bin/pip install", "without --constraint"),
    (AWS, "  ~/disentune/constraints.txt: constraints.txt\n", "", "error", "uv pip install", "is used but not sent"),
    (AWS, "  ~/disentune/src: src\n", "", "error", "uv pip install", "~/disentune/src is needed but not sent"),
    (AWS, "~/disentune boto3", "boto3", "error", None, "nothing installs disentune"),
    # the token
    (AWS, "  ~/.ray/auth_token: ~/.ray/auth_token\n", "", "error", None, "`ray up` does not send the token"),
    (KUBERAY, "  authOptions: {mode: token, secretName: disentune-token}\n", "  authOptions: {mode: disabled}\n",
     "warning", None, "RAY_AUTH_MODE=disabled"),
    (AWS, "  ~/.ray/auth_token: ~", "  /elsewhere/.ray/auth_token: ~", "error", None, "does not send the token"),
    (LOCAL, "ray start --head", "RAY_AUTH_MODE=disabled ray start --head", "error", START, "worker requires a token"),
    # starts
    (AWS, "ray start --head", "ray start --bed", "error", "head_start_ray", "no command runs `ray start ... --head`"),
    (AWS, "    ray start --address", "    # ray start --address",
     "error", "worker_start_ray", "`ray start ... --address`"),
    # secrets
    (AWS, "upscaling_speed: 1.0", f"upscaling_speed: 1.0  # wandb login {SECRET}",
     "error", "wandb login", "a key or password is in plain text"),
    (AWS, "upscaling_speed: 1.0", f"upscaling_speed: 1.0  # git+https://{SECRET}@github.com/me/mine",
     "error", "github.com", "a key or password is in plain text"),
    (AWS, "upscaling_speed: 1.0", f"upscaling_speed: 1.0  # aws configure set aws_secret_access_key {SECRET}",
     "error", "aws configure", "a key or password is in plain text"),
    (AWS, "upscaling_speed: 1.0", f"upscaling_speed: 1.0  # HF_TOKEN={SECRET}",
     "error", "HF_TOKEN", "a key or password is in plain text"),
    (KUBERAY, "              image: *image\n              # 5",
     f"              image: *image\n              env: [{{name: MY_API_KEY, value: {SECRET}}}]\n              # 5",
     "error", "MY_API_KEY", "MY_API_KEY is in plain text"),
    (AWS, "upscaling_speed: 1.0", f"upscaling_speed: 1.0  # WANDB_API_KEY={SECRET}",
     "error", "upscaling_speed", "a key or password is in plain text"),
    (AWS, "cat > ~/.disentune-env", "AWS_SECRET_ACCESS_KEY='abcd/efgh' cat > ~/.disentune-env",
     "error", "AWS_SECRET", "a key or password"),
    (AWS, "ulimit -n 65536;\n    ray start --head", "echo AKIAIOSFODNN7EXAMPLE;\n    ray start --head",
     "error", "AKIA", "a key or password"),
    (KUBERAY, "- {name: DISENTUNE_DATA, value: /data}",
     f"- {{name: DISENTUNE_DATA, value: /data}}\n              - {{name: MY_API_KEY, value: {SECRET}}}",
     "error", "MY_API_KEY", "MY_API_KEY is in plain text"),
    # storage
    (AWS, "s3://mine/runs", "/home/ubuntu/runs", "error", "/home/ubuntu/runs", "one machine's disk"),
    (KUBERAY, "gs://mine/runs", "/runs", "error", "/runs", "one machine's disk"),
    (LOCAL, "DISENTUNE_STORAGE=/shared/runs", "DISENTUNE_STORAGE=~/runs",
     "warning", "DISENTUNE_STORAGE", "a separate folder"),
    (LOCAL, "DISENTUNE_STORAGE=/shared/runs", "DISENTUNE_STORAGE=runs", "error", "DISENTUNE_STORAGE", "absolute path"),
    (AWS, "s3://mine/runs", "s3://", "error", "s3://'", "must name a bucket"),
    (KUBERAY, "gs://mine/runs", "/data/runs", "error", "/data/runs", "one machine's disk"),
    (AWS, "DISENTUNE_STORAGE=", "OTHER=", "warning", None, "DISENTUNE_STORAGE is not set"),
    # machines
    (AWS, "resources: {CPU: 0, GPU: 0}", "resources: {CPU: 4, GPU: 0}", "error", "  head:", "the head offers CPU 4"),
    (AWS, "resources: {CPU: 0, GPU: 0}", "resources: {}", "error", "  head:", "the head offers all its CPUs"),
    (LOCAL, " --num-cpus=0 --num-gpus=0", "", "warning", START, "the head offers all its CPUs"),
    (KUBERAY, 'num-cpus: "0", num-gpus: "0"', 'num-gpus: "0"', "error", "rayStartParams", "the head offers CPU 2"),
    (AWS, "has: &has {CPU: 8, GPU: 1}", "has: &has {CPU: 8, GPU: 1, gpu: 1}",
     "error", "has: &has", "write it in capitals"),
    (AWS, "all: &all 10", "all: &all 0", "error", None, "no worker ever starts"),
    (LOCAL, "[192.168.0.11, 192.168.0.12]", "[192.168.0.11, 192.168.0.10]",
     "error", "worker_ips", "192.168.0.10 is the head's address"),
    (AWS, "on_demand: &on_demand 2", "on_demand: &on_demand 0", "warning", "  gpu_spot:", "add an on-demand type"),
    (AWS, "RAY_enable_autoscaler_v2=0 RAY_AUTOSCALER", "RAY_AUTOSCALER",
     "warning", START, "never uses gpu_on_demand"),
    (KUBERAY, "          nodeSelector: {}\n", "", "warning", None, "add an on-demand type"),
    (AWS, "min_workers: 0\n    max_workers: *spot", "min_workers: 2\n    max_workers: *spot",
     "warning", "  gpu_spot:", "2 GPU machine(s) are always on"),
    (AWS, "python -m disentune.cluster.preemption", "sleep 1",
     "warning", "ray start --address", "no worker watches for the pre-emption notice"),
    (AWS, "idle_timeout_minutes: 10\n", "", "warning", None, "no idle_timeout_minutes"),
    (AWS, "idle_timeout_minutes: 10", "idle_timeout_minutes: 600", "warning", "idle_timeout", "machines for 600 min"),
    (AWS, "RAY_health_check_", "RAY_other_", "warning", START, "a silent node"),
    (AWS, "--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0", "error", "--dashboard-host", "the whole network"),
    (AWS, "\n    --autoscaling-config=~/ray_bootstrap_config.yaml", "", "error", START, "no --autoscaling-config"),
    (LOCAL, "    RAY_enable_autoscaler_v2=0\n", "", "error", START, "skips one machine"),
    (AWS, "type: aws", "type: azure", "warning", "type: azure", "knows only aws, gcp, local"),
    # files
    (AWS, "~/disentune/sweeps: sweeps", "~/disentune/sweeps: swweeps", "error", "swweeps", "swweeps does not exist"),
    (AWS, "ssh_user: ubuntu ", "ssh_private_key: ~/no.pem ", "error", "no.pem", "~/no.pem does not exist"),
    # Kubernetes
    (KUBERAY, "kind: RayJob", "kind: RayJbo", "error", "RayJbo", "unknown kind 'RayJbo'. Did you mean 'RayJob'?"),
    (KUBERAY, "  entrypoint: python", "  metadata: {}  # python",
     "error", "spec:\n  clusterSelector", "needs an entrypoint"),
    (KUBERAY, "- groupName: gpu-on-demand", "- groupName: gpu-spot", "error", None, "groupName gpu-spot is used twice"),
    (KUBERAY, "      maxReplicas: 8", "      maxReplicas: -1",
     "error", "groupName: gpu-spot", "is above maxReplicas -1"),
    (KUBERAY, "minReplicas: 0\n      # 4", "minReplicas: many\n      # 4",
     "error", "minReplicas: many", "minReplicas: must be a whole number, got 'many'"),
    (KUBERAY, 'rayStartParams: {num-cpus: "0"', "rayStartParams: {num-cpus: 0",
     "error", "rayStartParams", 'rayStartParams.num-cpus: must be a string; write num-cpus: "0"'),
    (KUBERAY, "- groupName: gpu-on-demand\n", "- idleTimeoutSeconds: 60\n",
     "error", "- idleTimeoutSeconds: 60", "workerGroupSpecs.1.groupName: is missing"),
    (KUBERAY, "apiVersion: ray.io/v1\nkind: RayJob", "apiVersion: ray.io/v1alpha1\nkind: RayJob",
     "error", "ray.io/v1alpha1", "apiVersion: must be ray.io/v1"),
    (KUBERAY, "metadata:\n  name: quickstart", "metadata: {}", "error", "metadata: {}", "a RayJob needs a name"),
    (KUBERAY, "  clusterSelector: {ray.io/cluster: disentune}\n", "",
     "error", "spec:\n  submissionMode", "needs clusterSelector or"),
    (KUBERAY, "  submissionMode", "  shutdownAfterJobFinishes: true\n  submissionMode",
     "error", "shutdownAfter", "chosen by clusterSelector"),
    (KUBERAY, "disentune.cluster.supervisor -- run", "disentune.cli run",
     "warning", "entrypoint:", "nothing restarts a crashed driver"),
    (KUBERAY, "enableInTreeAutoscaling: true", "enableInTreeAutoscaling: false",
     "warning", None, "fixed at `replicas`"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "level", "at", "text"), ONE_EACH, ids=lambda value: str(value)[:24])
def test_each_rule_finds_its_own_and_nothing_else(file, old, new, level, at, text):
    broken = changed(file, old, new)
    findings = found(broken)
    assert findings
    assert [one for one in findings if one[0] != level or text not in one[2]] == []
    if at is not None:
        assert findings[0][1] == line_of(broken, at)


def test_every_problem_is_found_at_once_errors_first():
    text = (ROOT / AWS).read_text().replace("--dashboard-host=127.0.0.1", "--dashboard-host=0.0.0.0")
    text = text.replace("--python 3.11", "--python 3.9").replace("upscaling_speed: 1.0", "upscalingspeed: 1\nmax: 2")
    text = text.replace("idle_timeout_minutes: 10", "idle_timeout_minutes: 600").replace(
        "min_workers: 0", "min_workers: 1"
    )
    findings = found(text)
    said = "\n".join(one[2] for one in findings)
    for part in ("CHANGE_ME", "whole network", "Python 3.9", "upscalingspeed", "idle machines for 600", "always on"):
        assert part in said
    levels = [one[0] for one in findings]
    assert levels == sorted(levels)
    assert (levels.count("error"), levels.count("warning")) == (7, 3)


# ---- rules that a change of one text does not show


@pytest.mark.parametrize("role", ["head", "worker"])
def test_the_token_must_be_asked_for_on_both_sides(role):
    text = filled_in(LOCAL).replace("    export RAY_AUTH_MODE=token\n", "")
    other = {"head": "worker", "worker": "head"}[role]
    start = {"head": "RAY_enable_autoscaler_v2=0", "worker": "ray start --address"}
    text = text.replace(start[other], f"RAY_AUTH_MODE=token {start[other]}")
    assert [(level, said[: said.index(";")]) for level, _, said in found(text)] == [
        ("error", f"the {role} does not set RAY_AUTH_MODE=token")
    ]


def test_a_token_that_was_never_made_is_distinguished_from_a_missing_file(laptop):
    (laptop / ".ray/auth_token").unlink()
    ((level, line, text),) = found(filled_in(AWS))
    assert (level, line) == ("error", line_of(filled_in(AWS), "~/.ray/auth_token: "))
    assert text.endswith("create it: (umask 077; ray get-auth-token --generate > /dev/null)")


def test_a_token_that_others_can_read_is_a_warning(laptop):
    (laptop / ".ray/auth_token").chmod(0o644)
    ((level, line, text),) = found(filled_in(AWS))
    assert (level, line) == ("warning", line_of(filled_in(AWS), "~/.ray/auth_token: "))
    assert text.endswith(f"run: chmod 600 {laptop / '.ray/auth_token'}")


def test_rays_own_commands_are_not_commands_of_ours():
    config = yaml.safe_load(filled_in(AWS))
    del config["setup_commands"], config["head_start_ray_commands"]
    said = [text for level, _, text in found(yaml.safe_dump(config)) if level == "error"]
    assert any("Ray's defaults install a nightly" in text for text in said)
    assert any("Ray's defaults open the dashboard" in text for text in said)


def test_pins_in_the_constraints_file_count(laptop):
    pins = laptop / "constraints.txt"
    pins.write_text(pins.read_text().replace("ray==2.60.0", "ray==2.59.0"))
    text = filled_in(AWS)
    said = "ray 2.59.0, but this machine has 2.60.0; they must be the same"
    assert found(text) == [("error", line_of(text, "~/disentune/constraints.txt: "), said)]


def test_no_message_repeats_a_secret():
    findings = found(changed(AWS, "{CPU: 0, GPU: 0}", f"{{CPU: WANDB_API_KEY={SECRET}}}"))
    assert any("a key or password" in said for _, _, said in findings)
    assert any("whole numbers of resources, got 'WANDB_API_KEY=***'" in said for _, _, said in findings)
    assert SECRET not in str(findings)


@pytest.mark.parametrize(
    ("file", "option"),
    [(AWS, {"InstanceMarketOptions": {"MarketType": "spot"}}), (GCP, {"scheduling": [{"preemptible": True}]})],
)
def test_a_spot_head_is_refused(file, option):
    config = yaml.safe_load(filled_in(file))
    head = config["available_node_types"]["head"]
    head["node_config"] = head["node_config"] | option
    assert [(level, text[:26]) for level, _, text in found(yaml.safe_dump(config))] == [
        ("error", "the head is a spot machine")
    ]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (LOCAL, "RAY_AUTH_MODE=token", 'RAY_AUTH_MODE="token"'),
        (LOCAL, "DISENTUNE_STORAGE=/shared/runs", 'DISENTUNE_STORAGE="/shared/runs"'),
        (AWS, "upscaling_speed: 1.0", "upscaling_speed: 1.0  # set WANDB_API_KEY: see docs"),
        (KUBERAY, "      maxReplicas: 8\n", ""),
        (AWS, "uv pip install", "uv pip install \\\n     "),
    ],
)
def test_what_is_right_is_right_in_other_words(file, old, new):
    assert found(changed(file, old, new)) == []


@pytest.mark.parametrize("text", ["---\n---\n", "3\n---\n"])
def test_a_document_that_says_nothing_before_a_cluster_is_passed_over(text):
    assert found(text + filled_in(AWS)) == []


def test_a_sweep_is_checked_even_without_a_cluster():
    job = filled_in(KUBERAY).partition("---\n")[2]
    assert found(job) == []
    ((level, _, text),) = [(one.level, 0, one.text) for one in check(written(job), Path("nowhere.yaml")).findings]
    assert (level, text) == ("error", "nowhere.yaml does not exist")


def test_a_file_that_cannot_be_read_repeats_no_secret_either():
    with pytest.raises(ConfigError, match="undefined alias") as caught:
        check(written(f"wandb_api_key: *{SECRET}\nprovider: 1\n"))
    assert SECRET not in str(caught.value)


def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe cannot be read: it is not a file"):
        check(tmp_path / "pipe")


def test_a_shared_mount_is_shared():
    text = changed(AWS, "s3://mine/runs", "/efs/runs")
    mounted = text.replace("initialization_commands: []", "initialization_commands: [sudo mount -t nfs4 host:/ /efs]")
    assert [level for level, _, _ in found(text)] == ["error"]
    assert found(mounted) == []
    volume = "[{name: data, mountPath: /data}, {name: runs, mountPath: /runs}]"
    text = changed(KUBERAY, "gs://mine/runs", "/runs/all")
    workers = text.replace("[{name: data, mountPath: /data}]", volume)
    assert [said for _, _, said in found(workers) if "one machine's disk" in said], "the head does not see it"
    head = '            resources: {requests: {cpu: "2"'
    assert found(workers.replace(head, f"            volumeMounts: [{{name: runs, mountPath: /runs}}]\n{head}")) == []


def test_a_variable_is_not_a_secret():
    text = changed(AWS, "- *storage", '- *storage\n  - test -n "$WANDB_API_KEY" && export WANDB_API_KEY=$WANDB_API_KEY')
    assert found(text) == []


# ---- with a sweep


def sweep(tmp_path, **more):
    tree = yaml.safe_load((ROOT / "sweeps/quickstart.yaml").read_text()) | more
    return written(yaml.safe_dump(tree), "sweep.yaml")


def test_a_trial_that_no_machine_holds(tmp_path):
    assert found(filled_in(AWS), sweep(tmp_path, resources={"cpu": 8, "gpu": 0.25})) == []
    path = sweep(tmp_path, resources={"cpu": 16, "gpu": 1})
    ((level, line, text),) = found(filled_in(AWS), path)
    assert (level, line) == ("error", line_of(path.read_text(), "resources:"))
    assert "a trial needs 16 CPU and 1 GPU, which no machine has: gpu_spot (0 to 8, spot, 8 CPU, 1 GPU)" in text
    assert found(filled_in(LOCAL), path) == []  # Ray finds out what the lab's machines have


def test_a_machine_without_gpus_holds_no_part_of_one(tmp_path):
    text = changed(AWS, "{CPU: 8, GPU: 1}", "{CPU: 8}")
    assert found(text, sweep(tmp_path, resources={"cpu": 2})) == []
    ((level, _, said),) = found(text, sweep(tmp_path, resources={"gpu": 0.5}))
    assert (level, said[:46]) == ("error", "resources: a trial needs 1 CPU and 0.5 GPU, wh")


def test_data_that_nothing_prepares(tmp_path):
    trial = {
        "dataset": {"name": "dsprites"}, "model": {"name": "conv64", "latents": 6},
        "framework": {"name": "beta_vae", "beta": 1.0}, "recon": {"name": "mse"},
        "training": {"steps": 10, "batch_size": 8, "learning_rate": 0.001},
        "evaluation": {"metrics": ["mig"], "every": 10}, "loss_scale": "mean",
    }  # fmt: skip
    tree = {"question": "?", "trial": trial, "arms": {"one": {}}, "seeds": 1, "resources": {"gpu": 0.5}}
    path = written(yaml.safe_dump(tree), "sweep.yaml")
    ((level, _, text),) = found(filled_in(AWS), path)
    assert (level, text[-31:]) == ("warning", " disentune data prepare dsprites"[-31:])
    prepared = changed(AWS, "prepare xysquares", "prepare xysquares && disentune data prepare dsprites")
    assert found(prepared, path) == []
    ((level, _, text),) = found(prepared.replace("export DISENTUNE_DATA=~/disentune-data", "true"), path)
    assert (level, text[:41]) == ("error", "dsprites: the workers need DISENTUNE_DATA")


def test_mistakes_of_the_sweep_come_along(tmp_path):
    path = written("question: '?'\narms: {one: {modell.name: mlp}}\n", "sweep.yaml")
    findings = check(written(filled_in(AWS)), path).findings
    assert "sweep.yaml:2" in {one.where for one in findings}


# ---- what cannot be read


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1, 2", "c.yaml:"),
        ("- 1\n", "is not a cluster file"),
        ("", "is not a cluster file"),
        ("cluster_name: x\n", "is not a cluster file"),
        ("provider: {type: aws}\nx: !!python/object:os.system y\n", "could not determine a constructor"),
        ("a: &a [" + "1," * 2000 + "]\nb: [" + "*a," * 200 + "]\n", "too large"),
        ("a: &a [*a]\n", "c.yaml"),
        ("a: \x00", "is not YAML"),
    ],
)
def test_what_is_not_a_cluster_file_is_refused_in_one_message(text, says):
    with pytest.raises(ConfigError) as refused:
        check(written(text))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["provider: aws\n", "provider: {type: aws}\navailable_node_types: [1]\nsetup_commands: yes\n",
     "kind: RayCluster\n", "kind: RayJob\nspec: {rayClusterSpec: {workerGroupSpecs: [1, {template: 3}]}}\n",
     "kind: RayCluster\nspec: {headGroupSpec: [], workerGroupSpecs: {}}\n",
     "provider: {type: local, worker_ips: 3}\nfile_mounts: [1]\nauth: 1\n",
     "provider: {type: aws}\nhead_node_type: [1]\n"
     "available_node_types: {a: 3, b: {resources: 4, node_config: 1, min_workers: x}}\n"],
)  # fmt: skip
def test_nonsense_gives_findings_and_no_traceback(text):
    assert check(written(text)).errors > 0


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        check(Path("none.yaml"))


# ---- the command


def test_the_command_groups_counts_and_exits():
    runner = CliRunner()
    written((ROOT / AWS).read_text().replace("min_workers: 0", "min_workers: 1"))
    shown = runner.invoke(app, ["cluster", "check", "c.yaml"])
    lines = shown.output.splitlines()
    assert (shown.exit_code, lines[0], lines[-1]) == (2, "errors:", "3 errors, 2 warnings")
    assert lines.index("warnings:") == 4
    assert lines[1].startswith("  c.yaml:20  replace CHANGE_ME with your own value")
    listed = runner.invoke(app, ["cluster", "check", "c.yaml", "--json"])
    assert [one["level"] for one in json.loads(listed.output)] == ["error"] * 3 + ["warning"] * 2
    assert json.loads(listed.output)[0].keys() == {"level", "where", "text"}
    written(filled_in(AWS))
    good = runner.invoke(app, ["cluster", "check", "c.yaml"])
    assert good.exit_code == 0
    assert good.output.splitlines()[-1] == "next: RAY_UP_enable_autoscaler_v2=0 ray up -y c.yaml"
    assert len(good.output.splitlines()) == 2


# ---- SLURM's script, with the programs of a cluster played by short scripts

PLAYED = {
    "srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"',
    "hostname": "echo 10.0.0.1",
    "scontrol": 'if [ "$1" = show ]; then echo one; else echo "$@" >> calls; fi',
    "ray": 'if [ "$1" = start ]; then echo "$@" >> calls; exec sleep 1000; fi',
    "python": """if [ "$1" = -c ]; then echo token; exit; fi
echo "driver $*" >> calls
echo "data $DISENTUNE_DATA" >> calls
trap 'echo stopped >> calls; exit 130' TERM
touch waiting
until [ -e go ]; do sleep 0.1; done
exit $(cat go)""",
}


@pytest.fixture
def slurm(laptop):
    folder = laptop / ".venv/bin"
    folder.mkdir(parents=True)
    for name, text in PLAYED.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    environment = os.environ | {
        "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "one", "SLURM_JOB_NUM_NODES": "1", "SLURM_CPUS_PER_TASK": "8",
        "SLURM_GPUS_ON_NODE": "1", "DISENTUNE_DATA": "",
    }  # fmt: skip
    command = ["bash", str(ROOT / "cluster/slurm.sh"), "sweeps/quickstart.yaml", "--set", "seeds=1"]
    started = subprocess.Popen(command, env=environment, start_new_session=True)
    yield started
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def calls():
    return Path("calls").read_text().splitlines() if Path("calls").exists() else []


@pytest.mark.parametrize("code", [0, 1])
def test_slurm_runs_the_driver_on_its_own_ray_and_ends_as_it_does(slurm, laptop, code):
    (laptop / "begun").write_text(str(code))
    (laptop / "begun").rename("go")
    assert slurm.wait(patience_s(60)) == code
    told = "\n".join(calls())
    command = "-m disentune.cluster.supervisor -- run sweeps/quickstart.yaml --set seeds=1 --address 10.0.0.1:20007"
    assert f"driver {command}" in told
    assert "start --head --block --node-ip-address=10.0.0.1 --port=20007" in told
    assert "--dashboard-host=127.0.0.1" in told
    assert f"data {laptop}/data" in told
    assert "requeue" not in told
    assert not (laptop / ".ray/auth_token_7").exists()


def test_slurm_checkpoints_and_queues_again_when_its_time_ends(slurm, laptop):
    wait_until((laptop / "waiting").exists, "the driver")
    os.kill(slurm.pid, signal.SIGTERM)
    assert slurm.wait(patience_s(60)) == 130
    assert calls()[-2:] == ["stopped", "requeue 7"]
    assert (laptop / ".ray/auth_token_7").stat().st_mode & 0o077 == 0

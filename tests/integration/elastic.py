"""Run inside namespaces of its own: a Ray head whose autoscaler can add small nodes, and a sweep on it.

python elastic.py FOLDER SWEEP [SET ...]   ->  a last line of JSON: exit code, output, most nodes at a time
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

CLUSTER = {
    "cluster_name": "elastic",
    "max_workers": 3,
    "idle_timeout_minutes": 1,
    "upscaling_speed": 100,
    "provider": {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "auth": {},
    "available_node_types": {
        "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
        "small": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 3},
    },
    "head_node_type": "ray.head.default",
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
}
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "0",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "160",
}


def command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def start_head(folder: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    file = folder / "cluster.json"
    file.write_text(json.dumps(CLUSTER))
    subprocess.run(
        [
            command("ray"), "start", "--head", f"--autoscaling-config={file}", "--num-cpus=0", "--disable-usage-stats",
            "--node-ip-address=127.0.0.1", "--include-dashboard=false", "--object-store-memory=100000000",
        ],
        check=True, capture_output=True,
    )  # fmt: skip


def most_nodes(done: threading.Event) -> int:
    """How many were alive at the same time, until it is done."""
    import ray

    ray.init(address="auto", logging_level=50, log_to_driver=False)
    most = 0
    while not done.wait(0.3):
        most = max(most, sum(node["Alive"] for node in ray.nodes()))
    ray.shutdown()
    return most


def main(folder: Path, sweep: str, *sets: str) -> None:
    os.environ.update(ENVIRONMENT, HOME=str(folder))
    os.chdir(folder)
    start_head(folder)
    done = threading.Event()
    options = [part for change in sets for part in ("--set", change)]
    process = subprocess.Popen(
        [command("disentune"), "run", sweep, "--address", "auto", *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    output: list[str] = []
    reader = threading.Thread(target=lambda: (output.append(process.communicate()[0]), done.set()))
    reader.start()
    most = most_nodes(done)
    reader.join()
    print(json.dumps({"code": process.returncode, "output": output[0], "most_nodes": most}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

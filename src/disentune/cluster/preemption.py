"""Watches for the cloud's notice that this machine will be taken away.

Runs on each node as `python -m disentune.cluster.preemption`.

When the notice comes, a file makes the workers of this node write a checkpoint and end, and Ray is asked to place
nothing new on the node. Uses only the standard library, so that running it beside every worker costs almost nothing.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from calendar import timegm
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.message import Message
from pathlib import Path
from typing import NamedTuple

from disentune.files.notice import notice_path

METADATA_URL = "http://169.254.169.254"
POLL_S, ANSWER_S, DRAIN_S = 5.0, 2.0, 30.0
ROUNDS = 3
"""Attempts to detect the cloud: a machine's network may come up after this process."""
MOST_BYTES = 1 << 20
GCP_WARNING_S = 30
"""How long before the end Google's notice comes; the notice does not contain the time."""


class Notice(NamedTuple):
    what: str
    seconds: int
    """Time left until the machine is gone."""


class Answer(NamedTuple):
    status: int
    text: str
    headers: Message


def ask(path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
    """Queries this machine's metadata server, never through a proxy. Raises OSError when it does not answer."""
    base = os.environ.get("DISENTUNE_METADATA_URL", METADATA_URL)
    request = urllib.request.Request(base + path, headers=dict(headers or {}), method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ANSWER_S) as answer:
            return Answer(answer.status, answer.read(MOST_BYTES).decode(errors="replace"), answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, "", error.headers)
    except ValueError as error:  # http.client raises it when the answer is not HTTP
        raise OSError(str(error)) from None


# ---- clouds


class Aws:
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html"""

    name = "aws"

    def __init__(self) -> None:
        self.token, self.warned = "", False

    def _get(self, path: str) -> Answer:
        """Uses a token (IMDSv2) and renews it when it expires; goes without if tokens are refused (IMDSv1)."""
        answer = ask(f"/latest/meta-data/{path}", self._headers())
        if answer.status == 401:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            given = ask("/latest/api/token", lifetime, "PUT")
            self.token = given.text if given.status == 200 else ""
            answer = ask(f"/latest/meta-data/{path}", self._headers())
        return answer

    def _headers(self) -> dict[str, str]:
        return {"X-aws-ec2-metadata-token": self.token} if self.token else {}

    def is_here(self) -> bool:
        answer = self._get("instance-id")
        return answer.status == 200 and bool(re.fullmatch(r"i-[0-9a-f]+", answer.text.strip()))

    def notice(self) -> Notice | None:
        answer = self._get("spot/instance-action")
        if answer.status == 200:
            what = json.loads(answer.text)
            return Notice(f"spot instance: {what['action']}", _until(_iso(what["time"])))
        if not self.warned and self._get("events/recommendations/rebalance").status == 200:
            self.warned = True
            _say("AWS warns that this spot instance has an increased risk of being interrupted")
        return None


class Gcp:
    """https://cloud.google.com/compute/docs/instances/create-use-preemptible and .../host-maintenance-overview"""

    name = "gcp"

    def _get(self, path: str) -> Answer:
        return ask(f"/computeMetadata/v1/instance/{path}", {"Metadata-Flavor": "Google"})

    def is_here(self) -> bool:
        answer = self._get("id")
        return answer.status == 200 and answer.headers.get("Metadata-Flavor") == "Google"

    def notice(self) -> Notice | None:
        if self._get("preempted").text.strip() == "TRUE":
            return Notice("preempted", GCP_WARNING_S)
        if self._get("maintenance-event").text.strip() == "TERMINATE_ON_HOST_MAINTENANCE":
            return Notice("terminated for maintenance", GCP_WARNING_S)
        return None


Cloud = Aws | Gcp


def _iso(text: str) -> float:
    return timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def _until(moment: float) -> int:
    return max(0, int(moment - time.time()))


def here(rounds: int = ROUNDS) -> Cloud | None:
    """The cloud that this machine runs on, detected from its metadata server; None if none answers."""
    for number in range(rounds):
        for cloud in (Aws(), Gcp()):
            with suppress(OSError, ValueError, AttributeError):
                if cloud.is_here():
                    return cloud
        if number + 1 < rounds:
            time.sleep(POLL_S)
    return None


def notices(cloud: Cloud) -> Iterator[Notice]:
    """Polls for notices; an invalid answer counts as no notice and is reported once."""
    puzzled = False
    while True:
        try:
            if notice := cloud.notice():
                yield notice
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if not puzzled:
                _say(f"{cloud.name}: invalid answer ({type(error).__name__}: {error}); still polling")
            puzzled = True
        time.sleep(POLL_S)


# ---- Ray


class Raylet(NamedTuple):
    node_id: str
    gcs_address: str


def raylets(processes: Path = Path("/proc")) -> set[Raylet]:
    """Ray's nodes on this machine, read from the command lines of processes, as Ray itself does."""
    found = set()
    for path in processes.glob("[0-9]*/cmdline"):
        with suppress(OSError):
            program, *words = path.read_bytes().decode(errors="replace").split("\0")
            options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
            if program.endswith("/raylet") and "--node_id" in options:
                found.add(Raylet(options["--node_id"], options.get("--gcs-address", "")))
    return found


def drain(raylet: Raylet, notice: Notice) -> None:
    """Asks Ray to place nothing new on a node whose workers have the notice; takes a few seconds."""
    command = [
        str(Path(sys.executable).with_name("ray")), "drain-node", "--address", raylet.gcs_address,
        "--node-id", raylet.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", notice.what,
        "--deadline-remaining-seconds", str(notice.seconds),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DRAIN_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        _say(f"node {raylet.node_id} could not be drained: {error}")
        return
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        _say(f"node {raylet.node_id} could not be drained: {' '.join(why)}")
    else:
        _say(f"node {raylet.node_id} is draining: {notice.what} in {notice.seconds} s")


def _say(text: str) -> None:
    sys.stdout.write(f"disentune.cluster.preemption: {text}\n")
    sys.stdout.flush()


def main() -> None:
    cloud = here()
    if cloud is None:
        _say("no metadata server of a cloud answers on this machine; nothing to watch")
        return
    _say(f"watching {cloud.name}")
    for notice in notices(cloud):
        there = raylets()
        for raylet in there:
            notice_path(raylet.node_id).write_text(f"{notice.what}\n")
        for raylet in there:
            drain(raylet, notice)
        if there:
            return


if __name__ == "__main__":
    main()

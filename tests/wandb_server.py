"""A small W&B server for tests: speaks what the real client calls, remembers all that it is sent, and fails on demand.

`python tests/wandb_server.py PORT` runs it alone.
"""

import gc
import gzip
import json
import re
import sys
import threading
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import wandb

KEY = "a" * 40
ENTITY = "tester"
NOW = "2026-01-01T00:00:00"


@dataclass
class Run:
    """What the server knows of one run."""

    created: int = 1
    config: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    history: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By offset: a line that is sent twice to the same place is one line."""
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exitcode: int | None = None
    preempting: bool = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [self.history[offset] for offset in sorted(self.history)]


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class WandbServer:
    """`mode` is what every request gets: "ok", an HTTP status, "drop" (the connection is cut), "stall" (no answer)."""

    def __init__(self, port: int = 0):
        self.mode: str | int = "ok"
        self.only = ""
        """The mode holds for paths with this in them; a path of its own stands for each GraphQL operation."""
        self.delay_s = 0.0
        self.lock = threading.Lock()
        self.runs: dict[tuple[str, str], Run] = {}
        self.artifacts: dict[str, dict[str, Any]] = {}
        self.uploads: dict[str, bytes] = {}
        self.views: list[dict[str, Any]] = []
        self.calls: Counter[str] = Counter()
        self.unknown: list[str] = []
        self.keys_seen: set[str] = set()
        self.rejected: set[str] = set()
        """Ids of runs that it does not take."""
        self.httpd = _QuietServer(("127.0.0.1", port), _handler(self))
        self.url = f"http://127.0.0.1:{self.httpd.server_address[1]}"
        threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.mode = "drop"
        self.httpd.shutdown()
        self.httpd.server_close()

    @contextmanager
    def failing(self, mode: str | int, only: str = ""):
        self.mode, self.only = mode, only
        try:
            yield
        finally:
            self.mode, self.only = "ok", ""

    def environment(self) -> dict[str, str]:
        """What a user would have set."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY, "WANDB_ERROR_REPORTING": "false"}

    def run(self, run_id: str, project: str | None = None) -> Run:
        found = [run for (where, name), run in self.runs.items() if name == run_id and project in (None, where)]
        assert len(found) == 1, f"{len(found)} runs of id {run_id}"
        return found[0]


def _handler(server: WandbServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def answer(self, value: Any, status: int = 200) -> None:
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> bytes:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

        def fails(self) -> bool:
            if server.delay_s:
                time.sleep(server.delay_s)
            mode = server.mode
            if mode == "ok" or server.only not in self.path:
                return False
            if mode == "stall":
                deadline = time.monotonic() + 300
                while server.mode == "stall" and time.monotonic() < deadline:
                    time.sleep(0.05)
            if mode in ("drop", "stall"):
                self.close_connection = True
                self.connection.close()
            else:
                server.calls[f"refused {mode}"] += 1
                self.answer(
                    {"errors": [{"message": f"made to answer {mode}"}], "error": f"made to answer {mode}"}, int(mode)
                )
            return True

        def do_POST(self) -> None:
            data = self.body()
            server.keys_seen.add(self.headers.get("Authorization", ""))
            try:
                if self.fails():
                    return
                with server.lock:
                    value = _post(server, self.path, data)
                self.answer(value)
            except (BrokenPipeError, ConnectionResetError, ValueError):
                self.close_connection = True

        def do_PUT(self) -> None:
            data = self.body()
            try:
                if self.fails():
                    return
                with server.lock:
                    server.uploads[self.path] = data
                self.answer({})
            except (BrokenPipeError, ConnectionResetError, ValueError):
                self.close_connection = True

        def do_GET(self) -> None:
            self.answer({}, 404)

    return Handler


def _post(server: WandbServer, path: str, data: bytes) -> Any:
    stream = re.fullmatch(r"/files/([^/]+)/([^/]+)/([^/]+)/file_stream", path)
    if stream:
        return _stream(server, stream[2], stream[3], json.loads(data))
    if path == "/graphql":
        call = json.loads(data)
        name = call.get("operationName") or re.search(r"(?:query|mutation)\s+(\w+)", call["query"])[1]  # type: ignore[index]
        server.calls[name] += 1
        answer = _ANSWERS.get(name)
        if answer is None:
            server.unknown.append(f"{name}: {call['query']}")
            return {"data": {}, "errors": [{"message": f"no such operation {name}"}]}
        given = call.get("variables") or {}
        if name == "UpsertBucket" and given.get("name") in server.rejected:
            return {"data": None, "errors": [{"message": "the run was deleted"}]}
        return {"data": answer(server, given)}
    server.calls[path] += 1
    return {}


def _stream(server: WandbServer, project: str, run_id: str, data: dict[str, Any]) -> Any:
    run = server.runs.setdefault((project, run_id), Run())
    server.calls["file_stream"] += 1
    files = data.get("files") or {}
    history = files.get("wandb-history.jsonl")
    if history:
        for number, line in enumerate(history["content"]):
            run.history[history["offset"] + number] = json.loads(line)
    summary = files.get("wandb-summary.json")
    if summary:
        run.summary = json.loads(summary["content"][-1])
    if data.get("preempting"):
        run.preempting = True
    if data.get("complete"):
        run.exitcode = data.get("exitcode")
    return {"limits": {"history": 10_000}}


def forget_client() -> None:
    """The real client remembers its server for as long as its process lives, and leaves its background process to the
    garbage collector: here, so that it troubles no other test."""
    wandb.teardown()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()  # what is left is the libraries': without them the next collection is fast


# ---- GraphQL


def _upsert(server: WandbServer, given: dict[str, Any]) -> Any:
    key = (given.get("project") or "uncategorized", given.get("name") or given.get("id"))
    inserted = key not in server.runs
    run = server.runs.setdefault(key, Run())
    if given.get("config"):
        run.config |= json.loads(given["config"])
    run.about |= {name: value for name, value in given.items() if value is not None and name != "config"}
    run.exitcode = None
    project = {"id": "p1", "name": key[0], "entity": {"id": "e1", "name": given.get("entity") or ENTITY}}
    bucket = {
        "id": f"id-{key[1]}", "name": key[1], "displayName": given.get("displayName") or key[1], "description": "",
        "config": json.dumps(run.config), "sweepName": None, "project": project, "historyLineCount": len(run.history),
    }  # fmt: skip
    return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}


def _resume_status(server: WandbServer, given: dict[str, Any]) -> Any:
    run = server.runs.get((given.get("project"), given.get("name")))  # type: ignore[arg-type]
    if run is None:
        return {
            "model": {"id": "p1", "name": given.get("project"), "entity": {"id": "e1", "name": ENTITY}, "bucket": None}
        }
    rows = run.rows
    bucket = {
        "id": f"id-{given['name']}", "name": given["name"], "summaryMetrics": json.dumps(run.summary),
        "displayName": given["name"], "logLineCount": 0, "historyLineCount": len(rows), "eventsLineCount": 0,
        "historyTail": json.dumps([json.dumps(row) for row in rows[-1:]]), "eventsTail": "[]",
        "config": json.dumps(run.config), "tags": run.about.get("tags") or [],
        "wandbConfig": json.dumps({"t": {"1": [1]}}),
    }  # fmt: skip
    return {"model": {"id": "p1", "name": given["project"], "entity": {"id": "e1", "name": ENTITY}, "bucket": bucket}}


def _create_files(server: WandbServer, given: dict[str, Any]) -> Any:
    names = given.get("files") or []
    run = (given.get("project"), given.get("run"))
    files = [{"name": name, "uploadUrl": f"{server.url}/upload/{run[1]}/{name}"} for name in names]
    return {"createRunFiles": {"runID": f"id-{run[1]}", "uploadHeaders": [], "files": files}}


def _viewer(server: WandbServer, given: dict[str, Any]) -> Any:
    teams = {"edges": [{"node": {"name": ENTITY}}]}
    return {
        "viewer": {
            "id": "u1",
            "entity": ENTITY,
            "username": ENTITY,
            "flags": "{}",
            "teams": teams,
            "apiKeys": {"edges": []},
        }
    }


def _create_artifact(server: WandbServer, given: dict[str, Any]) -> Any:
    source = given.get("input") or given
    name = f"{source.get('artifactCollectionName') or (source.get('artifactCollectionNames') or ['?'])[0]}"
    digest = source.get("digest")
    known = server.artifacts.get(f"{name}/{digest}")
    state = known["state"] if known else "PENDING"
    server.artifacts.setdefault(f"{name}/{digest}", {"state": "PENDING", "given": source})
    latest = {"id": f"{name}/{digest}", "versionIndex": 0} if known else None
    sequence = {"id": f"seq-{name}", "name": name, "latestArtifact": latest}
    artifact = {"id": f"{name}/{digest}", "digest": digest, "state": state, "aliases": [], "artifactSequence": sequence}
    return {"createArtifact": {"artifact": artifact}}


def _manifest(server: WandbServer, given: dict[str, Any]) -> Any:
    source = given.get("input") or given
    file = {
        "id": "m1",
        "name": "wandb_manifest.json",
        "displayName": "m",
        "uploadUrl": f"{server.url}/upload/manifest",
        "uploadHeaders": [],
    }
    artifact = {"id": source.get("artifactID"), "artifactManifest": {"id": "m1"}}
    return {"createArtifactManifest": {"artifactManifest": {"id": "m1", "file": file, "artifact": artifact}}}


def _artifact_file(server: WandbServer, number: int, spec: dict[str, Any]) -> dict[str, Any]:
    name = spec["name"]
    where = {"uploadUrl": f"{server.url}/upload/artifact/{name}", "storagePath": f"wandb_artifacts/{name}"}
    artifact = {"artifact": {"id": spec.get("artifactID")}, "uploadHeaders": [], "uploadMultipartUrls": None}
    return {"id": f"f{number}", "name": name, "displayName": name, **where, **artifact}


def _artifact_files(server: WandbServer, given: dict[str, Any]) -> Any:
    specs = (given.get("input") or given).get("artifactFiles") or []
    nodes = [{"node": _artifact_file(server, n, spec)} for n, spec in enumerate(specs)]
    return {"createArtifactFiles": {"files": {"edges": nodes}}}


def _commit_artifact(server: WandbServer, given: dict[str, Any]) -> Any:
    name = (given.get("input") or given).get("artifactID")
    server.artifacts[name]["state"] = "COMMITTED"
    return {"commitArtifact": {"artifact": {"id": name, "digest": name.rsplit("/", 1)[-1]}}}


def _upsert_view(server: WandbServer, given: dict[str, Any]) -> Any:
    server.views.append(given)
    kept = {key: given.get(key) for key in ("type", "name", "displayName", "description", "spec")}
    project = {"id": "p1", "name": given.get("projectName"), "entityName": ENTITY}
    view = {"id": f"view-{len(server.views)}", **kept, "project": project, "updatedAt": NOW, "createdAt": NOW}
    return {"upsertView": {"view": view, "inserted": True}}


def _projects(server: WandbServer, given: dict[str, Any]) -> Any:
    names = sorted({project for project, _ in server.runs} | {"demo"})
    about = {"entityName": ENTITY, "createdAt": NOW, "isBenchmark": False, "user": None}
    nodes = [{"node": {"id": name, "name": name, **about}, "cursor": ""} for name in names]
    return {"models": {"edges": nodes, "pageInfo": {"endCursor": None, "hasNextPage": False}}}


_ANSWERS = {
    "Viewer": _viewer,
    "UpsertBucket": _upsert,
    "RunResumeStatus": _resume_status,
    "CreateRunFiles": _create_files,
    "ServerFeaturesQuery": lambda server, given: {"serverInfo": {"features": []}},
    "OrganizationCoreWeaveOrganizationID": lambda server, given: {"entity": None},
    "ArtifactType": lambda server, given: {"project": {"artifact": None}},
    "CreateArtifact": _create_artifact,
    "CreateArtifactManifest": _manifest,
    "CreateArtifactFiles": _artifact_files,
    "CommitArtifact": _commit_artifact,
    "GetProjects": _projects,
    "upsertView": _upsert_view,
    "UpsertView": _upsert_view,
    "ProjectInternalId": lambda server, given: {"project": {"internalId": "UHJvamVjdEludGVybmFsSWQ6MQ=="}},
}


if __name__ == "__main__":
    alone = WandbServer(int(sys.argv[1]))
    print(alone.url, flush=True)  # noqa: T201
    threading.Event().wait()

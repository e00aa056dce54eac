"""A small S3 server on loopback, for the real client: objects in memory, and faults on demand.

Of Google Cloud Storage it answers only a download and a conditional upload.
"""

import hashlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

KEY_ID, SECRET = "an-id-for-tests", "a-secret-for-tests"
PAGE = 1000
REFUSALS = {404: "NoSuchKey", 409: "ConditionalRequestConflict", 412: "PreconditionFailed", 501: "NotImplemented"}


@dataclass
class Object:
    data: bytes
    time: float
    kind: str = ""
    generation: int = field(default_factory=itertools.count(1).__next__)


@dataclass
class Store:
    """The objects of the server, what was asked of it, and what goes wrong."""

    port: int = 0
    buckets: dict[str, dict[str, Object]] = field(default_factory=lambda: {"bucket": {}})
    requests: list[str] = field(default_factory=list)
    faults: list[int | str] = field(default_factory=list)
    """For the next requests, one each: a status to answer with, `drop` to close the connection, `` for none."""
    is_away: bool = False
    """Whether every connection is closed without an answer."""
    write_faults: list[int | str] = field(default_factory=list)
    """For the next conditional writes, one each: a status to answer with, or `lost` to write and then not answer."""
    conditions: str = "kept"
    """What becomes of conditions: `kept`, `refused` (501) or `ignored`."""
    refused: str = ""
    """Methods that these credentials may not use."""
    ahead_s: float = 0.0
    """Of its clock."""
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def now(self) -> float:
        return time.time() + self.ahead_s

    @property
    def names(self) -> list[str]:
        return sorted(self.buckets["bucket"])

    def __getitem__(self, name: str) -> bytes:
        return self.buckets["bucket"][name].data

    def next_fault(self) -> int | str:
        with self.lock:
            if self.is_away:
                return "drop"
            return self.faults.pop(0) if self.faults else ""


def use_store(store: Store, setenv: Callable[[str, str], None]) -> None:
    """By the environment alone, as a user would."""
    setenv("AWS_ENDPOINT_URL_S3", store.url)
    setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    setenv("AWS_EC2_METADATA_DISABLED", "true")


@contextmanager
def served(port: int = 0) -> Iterator[Store]:
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"store": store}))
    server.daemon_threads = True
    store.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    store: Store
    protocol_version = "HTTP/1.1"

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.store.now, usegmt=True)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self) -> None:
        data = self._body()
        store, parts = self.store, urlsplit(self.path)
        store.requests.append(f"{self.command} {self.path}")
        fault = store.next_fault()
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if fault:
            self._error(int(fault), "SlowDown" if fault == 503 else "InternalError")
            return
        bucket, _, key = unquote(parts.path).strip("/").partition("/") if parts.path != "/" else ("", "", "")
        if parts.path.endswith("/") and key:
            key += "/"  # the mark of an empty folder
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        google = re.fullmatch(r"(?:/upload)?/storage/v1/b/([^/]+)/o/?([^/]*)", parts.path)
        if google is not None:
            self._google(google[1], unquote(google[2]), query, data)
            return
        known = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        if known is not None and known[1] != KEY_ID:
            self._error(403, "InvalidAccessKeyId")
        elif known is None or self.command in store.refused.split():
            self._error(403, "AccessDenied")
        elif bucket not in store.buckets:
            self._error(404, "NoSuchBucket")
        else:
            self._answer(store.buckets[bucket], bucket, key, query, data)

    def _google(self, bucket: str, key: str, query: dict[str, str], data: bytes) -> None:
        """The two requests of its JSON API that conditional writes need."""
        objects = self.store.buckets[bucket]
        with self.store.lock:
            found = objects.get(query.get("name", key))
            if self.command == "POST" and int(query["ifGenerationMatch"]) == (found.generation if found else 0):
                found = objects[query["name"]] = Object(data, self.store.now)
            elif self.command == "POST":
                self._error(412, "conditionNotMet")
                return
        if found is None:
            self._error(404, "notFound")
        elif self.command == "POST":
            self._send(200, json.dumps({"generation": str(found.generation)}).encode())
        else:
            self._send(200, found.data, {"x-goog-generation": str(found.generation)})

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    # what comes in

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return _unchunked(data) if "aws-chunked" in self.headers.get("Content-Encoding", "") else data

    # what goes out

    def _answer(self, objects: dict[str, Object], bucket: str, key: str, query: dict[str, str], data: bytes) -> None:
        match self.command:
            case "GET" if not key:
                self._list(objects, bucket, query)
            case "HEAD" if not key:
                self._send(200)
            case "GET" | "HEAD":
                self._get(objects.get(key))
            case "PUT" if "partNumber" in query:
                self.store.uploads[query["uploadId"]][int(query["partNumber"])] = data
                self._send(200, headers={"ETag": _tag(data)})
            case "PUT":
                self._put(objects, key, data)
            case "POST" if "uploads" in query:
                upload = f"upload-{len(self.store.uploads)}"
                self.store.uploads[upload] = {}
                text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
                self._send(200, text.encode())
            case "POST" if "uploadId" in query:
                parts = self.store.uploads.pop(query["uploadId"])
                objects[key] = Object(b"".join(parts[number] for number in sorted(parts)), self.store.now)
                self._send(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
            case "POST" if "delete" in query:
                for name in re.findall(rb"<Key>(.*?)</Key>", data):
                    objects.pop(name.decode(), None)
                self._send(200, b"<DeleteResult></DeleteResult>")
            case "DELETE":
                objects.pop(key, None)
                self._send(204)
            case _:
                self._error(501, "NotImplemented")

    def _get(self, found: Object | None) -> None:
        if found is None:
            self._error(404, "NoSuchKey")
            return
        headers = {"Last-Modified": formatdate(found.time, usegmt=True), "ETag": _tag(found.data)}
        if found.kind:
            headers["Content-Type"] = found.kind
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            self._send(200, found.data, headers)
            return
        first, last = int(span[1]), min(int(span[2] or len(found.data)), len(found.data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(found.data)}"
        self._send(206, found.data[first : last + 1], headers)

    def _put(self, objects: dict[str, Object], key: str, data: bytes) -> None:
        source = self.headers.get("x-amz-copy-source")
        if source is not None:
            _, _, name = unquote(source).strip("/").partition("/")
            data = objects[name].data
        with self.store.lock:
            refusal = self._refusal(objects.get(key))
            if not refusal or refusal == "lost":
                objects[key] = Object(data, self.store.now, self.headers.get("Content-Type", ""))
        if refusal == "lost":
            self.close_connection = True
            self.connection.close()
            return
        if refusal:
            self._error(int(refusal), REFUSALS[int(refusal)])
            return
        body = b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>" if source is not None else b""
        self._send(200, body, {"ETag": _tag(data)})

    def _refusal(self, found: Object | None) -> int | str:
        """What S3 answers to a write whose condition does not hold; empty for one that may be done."""
        wanted, unwanted = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if (wanted is None and unwanted is None) or self.store.conditions == "ignored":
            return ""
        if self.store.conditions == "refused":
            return 501
        if unwanted is not None and found is not None:
            return 412
        if wanted is not None and (found is None or wanted != _tag(found.data)):
            return 404 if found is None else 412
        return self.store.write_faults.pop(0) if self.store.write_faults else ""

    def _list(self, objects: dict[str, Object], bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after, most = query.get("continuation-token", ""), min(int(query.get("max-keys", PAGE)), PAGE)
        entries: dict[str, str] = {}
        for key in sorted(objects):
            if not key.startswith(prefix):
                continue
            folder, sign, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            entry = f"{prefix}{folder}{sign}" if sign else key
            if entry > after:
                entries.setdefault(entry, "folder" if sign else "object")
        page = list(entries)[:most]
        more = len(entries) > len(page)
        text = "".join(_entry(key, objects) if entries[key] == "object" else _folder(key) for key in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        head = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
        cut = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        self._send(200, f"<ListBucketResult>{head}{cut}{token}{text}</ListBucketResult>".encode())

    def _error(self, status: int, code: str) -> None:
        self._send(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/xml", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _unchunked(data: bytes) -> bytes:
    """The content of a body in chunks that are signed or followed by a checksum."""
    content, rest = b"", data
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if size == 0:
            break
        content, rest = content + rest[:size], rest[size + 2 :]
    return content


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _entry(key: str, objects: dict[str, Object]) -> str:
    found = objects[key]
    when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.time))
    about = f"<LastModified>{when}</LastModified><Size>{len(found.data)}</Size>"
    return f"<Contents><Key>{escape(key)}</Key>{about}</Contents>"


def _folder(key: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(key)}</Prefix></CommonPrefixes>"

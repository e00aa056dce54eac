"""A small web server that misbehaves as it is told; it runs in a thread, on this machine only."""

import re
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

BLOCK = 1 << 14


@dataclass(frozen=True)
class Reply:
    """How one request is answered; by default as a good server does."""

    content: bytes = b""
    """The whole file, even if only a part of it is asked for."""
    status: int = 200
    """0 hangs up without a word."""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    """Beside the usual ones, or instead of them; None leaves one out."""
    etag: str | None = '"one"'
    date: str | None = None
    """Last-Modified."""
    ranges: bool = True
    """Whether it heeds Range."""
    conditions: bool = True
    """Whether it heeds If-Range."""
    chunked: bool = False
    stop: int | None = None
    """Bytes of the body that are sent before it stops."""
    how: Literal["end", "reset", "stall"] = "end"
    pause_s: float = 0.0
    """After each block of the body."""


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]


class BadServer(ThreadingHTTPServer):
    """`replies[path]` are given one after the other, the last one for ever; `log` has every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: dict[str, list[Reply]] = {}
        self.log: list[Request] = []
        self.closing = threading.Event()

    def serves(self, path: str, *replies: Reply) -> str:
        """Gives the address."""
        self.replies[path] = list(replies)
        return f"http://127.0.0.1:{self.server_port}{path}"

    def next_reply(self, path: str) -> Reply:
        replies = self.replies.get(path) or [Reply(status=404)]
        return replies.pop(0) if len(replies) > 1 else replies[0]

    def asked(self, header: str) -> list[str | None]:
        """What each request had there."""
        return [request.headers.get(header) for request in self.log]

    def handle_error(self, request, client_address) -> None:
        """A client that goes away is no error."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BadServer

    def do_GET(self) -> None:
        self.server.log.append(Request(self.path, dict(self.headers)))
        reply = self.server.next_reply(self.path)
        if reply.status == 0:
            self.close_connection = True
            return
        status, headers, body = self.answer(reply)
        self.send_response(status)
        for name, value in (headers | dict(reply.headers)).items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_body(reply, body)

    def answer(self, reply: Reply) -> tuple[int, dict[str, str | None], bytes]:
        """(status, headers, body) of a good server."""
        headers = {"ETag": reply.etag, "Last-Modified": reply.date, "Content-Type": "application/octet-stream"}
        headers["Connection"] = "close" if reply.stop is not None else None
        status, body, start = reply.status, reply.content, self.range_start(reply)
        if start is not None and start >= len(body):
            status, headers["Content-Range"], body = 416, f"bytes */{len(body)}", b""
        elif start is not None:
            status, headers["Content-Range"] = 206, f"bytes {start}-{len(body) - 1}/{len(body)}"
            body = body[start:]
        headers |= {"Transfer-Encoding": "chunked"} if reply.chunked else {"Content-Length": str(len(body))}
        return status, headers, body

    def range_start(self, reply: Reply) -> int | None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        fails = reply.conditions and condition is not None and condition not in (reply.etag, reply.date)
        return None if not asked or not reply.ranges or reply.status != 200 or fails else int(asked[1])

    def send_body(self, reply: Reply, body: bytes) -> None:
        for start in range(0, len(body[: reply.stop]), BLOCK):
            block = body[: reply.stop][start : start + BLOCK]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if reply.chunked else block)
            self.server.closing.wait(reply.pause_s)
        if reply.stop is None:
            self.wfile.write(b"0\r\n\r\n" if reply.chunked else b"")
            return
        self.close_connection = True
        if reply.how == "stall":
            self.server.closing.wait(60)
        if reply.how == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def bad_server() -> Iterator[BadServer]:
    with BadServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


def closed_port() -> int:
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]

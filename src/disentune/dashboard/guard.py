"""Which requests are answered (those with the token, to a name of this machine), and what browsers may do with them."""

import hmac
import secrets
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Requests under any other name are refused: that name may have been made to point here (DNS rebinding)."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""The policy for a figure that is opened by itself: it may have styles, and no scripts."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
WITHOUT_TOKEN = (
    "403: this page needs the token of its server. Open the address that `disentune dashboard` printed, which ends in "
    "?token=...\n"
)
STRANGE_HOST = "403: this server answers only to 127.0.0.1 and localhost. Open the address that it printed.\n"


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """Lets a request through to `app` if it has the token, as `?token=` once and as a cookie from then on."""

    def __init__(self, app: ASGIApp, token: str):
        self.app, self.token = app, token
        self.cookie = f"disentune-{secrets.token_hex(4)}"
        """A random name, because servers on different ports of one machine receive each other's cookies."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = self._refusal(Request(scope))
        await (answer or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, request: Request) -> Response | None:
        """The answer that refuses a request; None if the request may pass."""
        if not _is_ours(request.headers.getlist("host")):
            return PlainTextResponse(STRANGE_HOST, 403)
        if self._is_right(request.query_params.get("token", "")):
            return self._admitted(request)
        if self._is_right(request.cookies.get(self.cookie, "")):
            return None
        return PlainTextResponse(WITHOUT_TOKEN, 403)

    def _is_right(self, given: str) -> bool:
        """Compares in constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())

    def _admitted(self, request: Request) -> Response:
        """A redirect to the same address without the token, which keeps the token out of the browser's history."""
        rest = [pair for pair in parse_qsl(request.url.query) if pair[0] != "token"]
        path = "/" + request.url.path.lstrip("/")  # two slashes would name another host
        answer = RedirectResponse(f"{path}?{urlencode(rest)}" if rest else path, 303)
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="lax", path="/")
        return answer


def _is_ours(hosts: Iterable[str]) -> bool:
    found = list(hosts)
    return len(found) == 1 and found[0].rpartition(":")[0 if _has_port(found[0]) else 2].lower() in HOSTS


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdecimal() and ":" in host


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Content-Security-Policy", POLICY)
        await send(message)

    return sent

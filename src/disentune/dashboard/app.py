"""The addresses of the server. Every one is a GET, and none changes anything."""

import asyncio
import base64
import json
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from disentune.dashboard import answers, comparing, figures, latents
from disentune.dashboard import trial as trial_page
from disentune.dashboard.desk import Desk
from disentune.dashboard.feed import complaint
from disentune.dashboard.guard import PICTURE_POLICY, Guard
from disentune.dashboard.shelf import Forbidden, Unknown
from disentune.environment import without_secrets
from disentune.errors import ConfigError, DisentuneError, Unavailable
from disentune.report import SHARED_STYLE

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
STATUS: dict[type[Exception], int] = {Unknown: 404, Forbidden: 403, Unavailable: 503, DisentuneError: 400, OSError: 503}
MOST_IDS = 20_000


def app(desk: Desk, token: str) -> Guard:
    """The whole server, behind its guard."""
    site = Site(desk)
    handlers: Any = {Exception: _refused, HTTPException: _http_refused}
    handlers |= dict.fromkeys(STATUS, _refused)
    return Guard(Starlette(routes=site.routes(), exception_handlers=handlers), token)


class Finite(JSONResponse):
    """JSON that every browser reads; half a character of a file's name is spelled out."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


async def _refused(request: Request, error: Exception) -> Response:
    """Answers every error with one sentence."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
    text = complaint(error) if isinstance(error, OSError) else str(error)
    if status == 500:
        traceback.print_exception(error)
        text = f"a bug in disentune: {type(error).__name__}: {error}"
    return Finite({"error": without_secrets(text)}, status)


async def _http_refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: "there is nothing at this address", 405: "this server only reads"}
    return Finite({"error": text.get(error.status_code, error.detail)}, error.status_code)


def _number(request: Request, name: str, default: int = 0) -> int:
    text = request.query_params.get(name, str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ConfigError(f"{name}: must be a whole number, got '{text:.40}'")
    return int(text)


def _numbers(request: Request, name: str) -> list[float]:
    try:
        return [float(part) for part in request.query_params.get(name, "").split(",")]
    except ValueError:
        raise ConfigError(f"{name}: must be numbers separated by commas") from None


def _listed(request: Request, name: str) -> list[str]:
    return [part for part in request.query_params.get(name, "").split(",") if part][:MOST_IDS]


class Site:
    """The answer of each address."""

    def __init__(self, desk: Desk):
        self.desk, self.album, self.models = desk, figures.album(), latents.Models()

    def routes(self) -> list[Route]:
        asked: dict[str, Callable[[Request], Any]] = {
            "runs": lambda request: answers.runs(self.desk),
            "run": lambda request: answers.run(self._run(request)),
            "environment": lambda request: answers.environment(self._run(request)),
            "trials": self.trials,
            "curves": self.curves,
            "figures": lambda request: figures.offered(self._run(request)),
            "figure": self.figure,
            "compare": self.compare,
            "trial": lambda request: trial_page.trial(self._trial(request)),
            "model": lambda request: latents.described(self._model(request)),
            "encode": self.encode,
            "decode": self.decode,
        }
        return [
            Route("/", _file(_of_page("index.html"))),
            *(Route(f"/page/{path.name}", _file(path)) for path in [SHARED_STYLE, *sorted(PAGE.iterdir())]),
            *(Route(f"/api/{name}", _as_json(answer)) for name, answer in asked.items()),
            Route("/api/drawing", _in_thread(self.drawing)),
            Route("/api/picture", _in_thread(self.picture)),
        ]

    # what a request means

    def _run(self, request: Request) -> Any:
        return self.desk.run(request.query_params.get("run", ""))

    def _trial(self, request: Request) -> Any:
        return self.desk.shelf.trial(request.query_params.get("run", ""), request.query_params.get("id", ""))

    def _model(self, request: Request) -> latents.Opened:
        return self.models.get(self._run(request).run, self._trial(request))

    # answers

    def trials(self, request: Request) -> Any:
        since, columns = _number(request, "since"), request.query_params.get("columns", "")
        return answers.trials(self._run(request), since, columns)

    def curves(self, request: Request) -> Any:
        metric, by = request.query_params.get("metric", ""), request.query_params.get("by", "")
        return answers.curves(self._run(request), metric, by, _listed(request, "ids"))

    def figure(self, request: Request) -> Any:
        spec = request.query_params.get("spec", "")
        return figures.drawn(self.album, self._run(request), spec, _listed(request, "ids"))

    def drawing(self, request: Request) -> Response:
        """A figure that was drawn before, as SVG or PNG."""
        found = self.album.get(request.query_params.get("key", ""))
        if request.query_params.get("as") == "png":
            return Response(found.png, media_type="image/png")
        content = figures.svg(found, request.query_params.get("theme") == "dark")
        return Response(content, media_type="image/svg+xml", headers={"Content-Security-Policy": PICTURE_POLICY})

    def compare(self, request: Request) -> Any:
        choices = comparing.chosen(request.query_params.get("chosen", ""))
        by, metric = request.query_params.get("by", ""), request.query_params.get("metric", "")
        return comparing.compared(self.desk, choices, by, metric)

    def picture(self, request: Request) -> Response:
        sheet = request.query_params.get("sheet", "")
        return Response(
            trial_page.picture(self._trial(request), _number(request, "step"), sheet), media_type="image/png"
        )

    def encode(self, request: Request) -> Any:
        factors = [int(number) for number in _numbers(request, "factors") if abs(number) < 2**31]
        image, code = latents.encoded(self._model(request), factors)
        return {"image": _data(image), "z": code}

    def decode(self, request: Request) -> Any:
        found = latents.shown(self._model(request), _numbers(request, "z"))
        return found | {"image": _data(found["image"]), "nearest": _data(found["nearest"])}


def _data(image: Any) -> str:
    """An image as a data: URL."""
    pixels = image[..., 0] if image.shape[-1] == 1 else image[..., :3]
    return f"data:image/png;base64,{base64.b64encode(trial_page.png(pixels)).decode()}"


def _of_page(name: str) -> Path:
    return PAGE / name


def _file(path: Path) -> Callable[[Request], Response]:
    content, kind = path.read_bytes(), KINDS[path.suffix]

    def answer(request: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


def _as_json(answer: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
    return _in_thread(lambda request: Finite(answer(request)))


def _in_thread(answer: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Answers in a thread of its own, since that may wait for a disk or draw. The server can end without waiting for
    it, unlike for a thread of Starlette's pool."""

    async def respond(request: Request) -> Response:
        loop = asyncio.get_running_loop()
        promise: asyncio.Future[Response] = loop.create_future()
        Thread(target=_kept, args=(promise, loop, partial(answer, request)), daemon=True).start()
        try:
            return await promise
        except asyncio.CancelledError:  # Ctrl-C
            return Finite({"error": "the server has ended"}, 503)

    return respond


def _kept(promise: asyncio.Future[Response], loop: asyncio.AbstractEventLoop, act: Callable[[], Response]) -> None:
    """Keeps a promise, unless nobody waits for it any more."""
    try:
        settle, outcome = promise.set_result, act()
    except Exception as error:  # it is raised again where the answer is awaited
        settle, outcome = promise.set_exception, error  # type: ignore[assignment]
    with suppress(RuntimeError):  # the server has ended
        loop.call_soon_threadsafe(lambda: promise.done() or settle(outcome))

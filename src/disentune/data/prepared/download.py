"""Robust downloads: resumed, retried, from several mirrors, and checked.

    <folder>/<name>             the complete file, checked if its hash is known
    <folder>/<name>.part        what has been downloaded so far
    <folder>/<name>.part.json   which file these bytes belong to, so that they are continued only with that file

Proxies and certificates are those of the environment (HTTPS_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE).
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import responses as phrases
from pathlib import Path
from time import monotonic, sleep, time
from typing import Protocol

import requests
from filelock import FileLock
from pydantic import ValidationError
from requests.exceptions import ProxyError, TooManyRedirects
from urllib3.exceptions import HTTPError, ReadTimeoutError

from disentune.errors import DataError
from disentune.plugin import File, Frozen

TIMEOUT_S = 30.0
"""Seconds to wait for a connection, and for the next byte."""
WAITS_S: tuple[float, ...] = (1, 2, 4, 8, 16)
"""Waits before each new attempt; after the last, the mirror is given up. An attempt with progress resets the waits."""
LONGEST_WAIT_S = 120.0
"""Longest wait that a server may request."""
SAY_EVERY_S = 0.2
BLOCK = 1 << 16
"""Bytes written at a time, which is what a killed process may lose."""
TEMPORARY = {408, 425, 429, *range(500, 600)}
"""Status codes after which the same request may succeed later."""


class Progress(Protocol):
    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Called with how many bytes or images of `what` are done; the total is None if unknown."""


Tell = Callable[[int, int | None], None]


class Refused(Exception):
    """A mirror does not provide the file."""


class Interrupted(Exception):
    """An attempt failed, but another one may succeed."""

    def __init__(self, reason: str, wait_s: float = 0.0):
        super().__init__(reason)
        self.wait_s = wait_s


def download(file: File, folder: Path, command: str, say: Progress) -> Path:
    """Returns folder/name, downloaded from the first mirror that has it unless it exists; `command` is the command that
    prepares the data set. Raises DataError if no mirror has the right file, or if it cannot be written."""
    _assert_plain(file.name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{file.name}.lock"):  # two data sets may be made from one file
            return _there_or_fetched(file, folder, command, say)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DataError(f"{folder / file.name} cannot be written ({reason}); fix that, then run: {command}") from None


def _assert_plain(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\\" in name or not name.isprintable():
        raise DataError(f"a file to download must have a plain name, without a folder, but has {name!r}")


def _there_or_fetched(file: File, folder: Path, command: str, say: Progress) -> Path:
    whole, part = folder / file.name, Part(folder / f"{file.name}.part")
    if whole.is_file() and (file.republished or not _wrong_hash(whole, file)):  # its origin is unknown
        return whole
    reasons = []
    with requests.Session() as session:
        for url in _in_turn(file, part):
            say(f"connecting to {_host(url)} for {file.name}", 0, None)
            try:
                _fetch(session, url, file, part, lambda done, total: say(f"downloading {file.name}", done, total))
            except Refused as reason:
                reasons.append(f"  {_without_secrets(url)}: {reason}")
            else:
                part.becomes(whole)
                return whole
    advice = f"download {file.name} by hand, then run: {command} --from FILE"
    raise DataError("\n".join([f"{file.name} could not be downloaded:", *reasons, advice]))


def _in_turn(file: File, part: "Part") -> list[str]:
    """The mirrors, starting with the one of the unfinished download, unless mirrors differ: then in order of trust."""
    return [*file.urls] if file.republished else sorted(file.urls, key=lambda url: part.held(url) == 0)


def _wrong_hash(path: Path, file: File) -> str:
    """What is wrong with the file; empty if nothing is."""
    if not file.md5:
        return ""
    with path.open("rb") as opened:
        found = hashlib.file_digest(opened, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return "" if found == file.md5.lower() else f"its md5 must be {file.md5.lower()}, but is {found}"


def _host(url: str) -> str:
    return _without_secrets(url).partition("//")[2].partition("/")[0]


def _without_secrets(url: str) -> str:
    return re.sub(r"//[^/]*@", "//", re.split(r"[?#]", url)[0])


# ---- the part downloaded so far


class Origin(Frozen):
    """The file that the bytes of a part belong to."""

    url: str
    """A hash of the address, which may contain a password."""
    validator: str
    """A strong ETag or a Last-Modified, which changes with the file; empty if the server sends neither."""
    total: int | None
    """Bytes of the whole file."""


@dataclass(frozen=True)
class Part:
    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    @property
    def _origin_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def origin(self, url: str) -> Origin | None:
        """None if the bytes came from another address, or if it is unknown whether the file has changed since."""
        try:
            origin = Origin.model_validate_json(self._origin_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
        return origin if origin.url == _hashed(url) and origin.validator else None

    def held(self, url: str) -> int:
        """Number of bytes that a download from this address can continue from."""
        return self.size if self.origin(url) else 0

    def begin(self, url: str, validator: str, total: int | None) -> None:
        """Empties the part before recording where the bytes come from, so that the record is always true."""
        self.path.write_bytes(b"")
        self._origin_path.write_text(Origin(url=_hashed(url), validator=validator, total=total).model_dump_json())

    def append(self, blocks: Iterator[bytes], total: int | None, tell: Tell) -> None:
        done, due = self.size, 0.0
        with self.path.open("ab") as opened:
            for block in blocks:
                opened.write(block)
                done += len(block)
                if monotonic() >= due:
                    tell(done, total)
                    due = monotonic() + SAY_EVERY_S
            opened.flush()
            os.fsync(opened.fileno())

    def becomes(self, whole: Path) -> None:
        self.path.replace(whole)
        self._origin_path.unlink(missing_ok=True)

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._origin_path.unlink(missing_ok=True)


def _hashed(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()


# ---- one mirror


def _fetch(session: requests.Session, url: str, file: File, part: Part, tell: Tell) -> None:
    """Completes the part. Raises Refused if that is impossible, or if the mirror sent the wrong file twice."""
    wrong = ""
    for _ in range(2):
        _complete(session, url, file.name, part, tell)
        wrong = "" if url in file.republished else _wrong_hash(part.path, file)
        if not wrong:
            tell(part.size, part.size)
            return
        part.discard()
    raise Refused(wrong)


def _complete(session: requests.Session, url: str, name: str, part: Part, tell: Tell) -> None:
    failures, farthest = 0, part.held(url)
    while True:
        try:
            return _attempt(session, url, name, part, tell)
        except Interrupted as trouble:
            failures = 1 if part.held(url) > farthest else failures + 1
            farthest = max(farthest, part.held(url))
            if failures > len(WAITS_S):
                raise Refused(str(trouble)) from None
            sleep(max(WAITS_S[failures - 1], min(trouble.wait_s, LONGEST_WAIT_S)))


def _attempt(session: requests.Session, url: str, name: str, part: Part, tell: Tell) -> None:
    """Makes one request; the part is complete when it returns."""
    with _response(session, url, part) as response:
        if response.status_code == 416 and part.held(url):
            return _assert_nothing_follows(response, part)
        _assert_file(response, name)
        total = _begun(response, url, part) if response.status_code == 200 else _continued(response, url, part)
        part.append(_blocks(response), total, tell)
    if total is not None and part.size != total:
        raise Interrupted(f"the connection ended after {part.size} of {total} bytes")
    if part.size == 0:
        raise Refused("returns an empty file")
    return None


def _response(session: requests.Session, url: str, part: Part) -> requests.Response:
    try:
        return session.get(url, headers=_asked(part, url), stream=True, timeout=TIMEOUT_S)
    except TooManyRedirects:
        raise Refused("redirects in a circle") from None
    except ValueError:  # also raised by libraries for invalid addresses
        raise Refused("is not an http or https address, or redirects to one that is not") from None
    except requests.RequestException as error:
        raise Interrupted(_reason(error)) from None


def _blocks(response: requests.Response) -> Iterator[bytes]:
    try:
        yield from response.raw.stream(BLOCK, decode_content=False)
    except HTTPError as error:
        raise Interrupted(_reason(error)) from None


def _asked(part: Part, url: str) -> dict[str, str]:
    """Requests uncompressed bytes, because offsets must count the bytes that are written."""
    headers, origin, held = {"Accept-Encoding": "identity"}, part.origin(url), part.held(url)
    return headers | {"Range": f"bytes={held}-", "If-Range": origin.validator} if origin and held else headers


def _assert_nothing_follows(response: requests.Response, part: Part) -> None:
    """The server has no more bytes, so the part is complete or belongs to another file."""
    if response.headers.get("Content-Range", "").replace(" ", "") != f"bytes*/{part.size}":
        part.discard()
        raise Interrupted("the file is shorter than the part that was already downloaded")


def _assert_file(response: requests.Response, name: str) -> None:
    status, headers = response.status_code, response.headers
    if status not in (200, 206):
        reason = f"answers {status} {phrases.get(status, '')}".strip()
        raise Interrupted(reason, _retry_after_s(headers)) if status in TEMPORARY else Refused(reason)
    if headers.get("Content-Type", "").lower().startswith(("text/html", "application/xhtml")):
        raise Refused("returns a web page instead of the file")
    if headers.get("Content-Encoding", "identity") != "identity" and not name.endswith("gz"):
        raise Refused("compresses the file although asked not to")  # a .gz file is often sent with that header


def _begun(response: requests.Response, url: str, part: Part) -> int | None:
    """Starts from zero; returns the size of the whole file."""
    length = response.headers.get("Content-Length", "")
    total = int(length) if length.isdecimal() else None
    _assert_room(part, total)
    part.begin(url, _validator(response.headers), total)
    return total


def _continued(response: requests.Response, url: str, part: Part) -> int | None:
    """Refuses bytes of another range or of a changed file, which some servers send regardless of the request."""
    origin, validator = part.origin(url), _validator(response.headers)
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if origin and span and int(span[1]) == part.size and validator in ("", origin.validator):
        total = origin.total if span[2] == "*" else int(span[2])
        if origin.total in (None, total):
            _assert_room(part, total)
            return total
    part.discard()
    raise Interrupted("returned other bytes than requested")


def _assert_room(part: Part, total: int | None) -> None:
    free, missing = shutil.disk_usage(part.path.parent).free, (total or 0) - part.size
    if missing > free:
        raise DataError(
            f"{part.path.with_suffix('')} needs {missing / 1e6:,.1f} MB more, but only {free / 1e6:,.1f} MB are free "
            "on that disk; free some space, or choose another data root"
        )


def _validator(headers: Mapping[str, str]) -> str:
    """Ignores weak ETags, which do not guarantee equal bytes."""
    etag = headers.get("ETag", "")
    return etag if etag.startswith('"') else headers.get("Last-Modified", "")


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """The wait that the server requests, given in seconds or as a date; 0 if it requests none."""
    value = headers.get("Retry-After", "")
    try:
        return float(value) if value.isdecimal() else parsedate_to_datetime(value).timestamp() - time()
    except (ValueError, OverflowError):
        return 0.0


def _reason(error: BaseException) -> str:
    """A short reason without the address, which libraries quote in full."""
    if isinstance(error, requests.Timeout | ReadTimeoutError):
        return f"no data for {TIMEOUT_S:g} s"
    if isinstance(error, ProxyError):
        return "the proxy does not answer, or refuses the request"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return "the connection broke"

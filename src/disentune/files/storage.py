"""Where runs are kept: a local or mounted folder as a plain Path, or an object store (s3://, gs://) as a RemotePath.

A PUT of an object is atomic, so an object store needs no temporary files; its folders exist only as parts of names.
Every failure of a store becomes an OSError with the errno that a disk would give, so callers treat both alike.
"""

import errno
import fnmatch
import functools
import hashlib
import os
import random
import re
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, ParamSpec, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import psutil

from disentune.errors import ConfigError, Unavailable

P = ParamSpec("P")
T = TypeVar("T")
DEFAULT_STORAGE = "runs"
"""Where runs are kept unless --storage or DISENTUNE_STORAGE says otherwise."""
SCHEMES = ("s3", "gs")
SUPPORTED = "a folder that every worker sees, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"
CONNECT_S, ANSWER_S = 3.0, 10.0
"""How long a store may take to connect, and between two parts of an answer."""
PATIENCE_S = 60.0
"""How long a temporary failure of the storage may last before it counts as an outage."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 10.0
AT_ONCE = 24
"""Objects that are fetched at the same time."""
LARGEST_FILE = 10**9
"""Size limit of a file that is read as a whole; a million rows are smaller."""
TRANSIENT = {
    errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTDOWN,
    errno.EHOSTUNREACH, errno.EINTR, errno.EIO, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.EPIPE,
    errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip
ADVICE = {
    errno.ENOSPC: "free some space there, then resume the run",
    errno.EDQUOT: "raise the quota or free some space there, then resume the run",
    errno.EROFS: "mount it for writing, or choose another --storage",
    errno.EACCES: "check the permissions there, or choose another --storage",
    errno.EPERM: "check the permissions there, or choose another --storage",
}


# ---- temporary failures


_chance = random.SystemRandom()  # a retried write must not change the random numbers of training


def retried(act: Callable[P, T]) -> Callable[P, T]:
    """Retries temporary failures of the storage, with growing waits. Other failures (a full or read-only disk, a
    missing file, a refusal) are raised immediately. Only for calls that can be repeated."""

    @functools.wraps(act)
    def patient(*args: P.args, **kwargs: P.kwargs) -> T:
        deadline, wait = time.monotonic() + PATIENCE_S, FIRST_WAIT_S
        while True:
            try:
                return act(*args, **kwargs)
            except OSError as error:
                if error.errno not in TRANSIENT or time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait * _chance.uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_WAIT_S)

    return patient


def is_damage(error: OSError, path: "Place") -> bool:
    """Whether an error is about the file itself, such as a bad block, and not about access to the storage."""
    return isinstance(error, FileNotFoundError) or (error.errno == errno.EIO and isinstance(path, Path))


def is_of_the_storage(error: OSError) -> bool:
    """Whether an error may go away without a change to the code or the sweep."""
    return error.errno in TRANSIENT or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def advice(error: OSError) -> str:
    """What to do about a failure of the storage; empty if there is no advice."""
    if error.errno == errno.ENOSPC and _lacks_inodes(error.filename):
        return "there is space, but the file system cannot hold more files; delete some there, then resume the run"
    return ADVICE.get(error.errno or 0, "the storage does not answer" if error.errno in TRANSIENT else "")


def _lacks_inodes(path: object) -> bool:
    """Whether the file system of a path, or of the nearest folder above it that exists, has room but no free inode."""
    if not isinstance(path, str | os.PathLike) or "://" in str(path):
        return False
    folder = Path(path).absolute().parent
    with suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        found = os.statvfs(folder)
        return found.f_files > 0 and found.f_favail == 0 and found.f_bavail > 0
    return False


# ---- object stores


class Stat(NamedTuple):
    """What a store reports about an object, with the names of `Path.stat`."""

    st_size: int
    st_mtime_ns: int
    st_ino: int = 0

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


@dataclass(frozen=True)
class View:
    """The objects below a folder as they were at one moment, and the contents of some of them."""

    root: str
    files: dict[str, Stat]
    contents: dict[str, bytes] = field(default_factory=dict)

    @functools.cached_property
    def folders(self) -> dict[str, dict[str, None]]:
        """The names in each folder."""
        found: dict[str, dict[str, None]] = {self.root: {}}
        for key in self.files:
            while key != self.root:
                folder, _, name = key.rpartition("/")
                known = folder in found
                found.setdefault(folder, {})[name] = None
                if known:
                    break
                key = folder
        return found


@dataclass(frozen=True, order=True)
class RemotePath:
    """An object or a folder in a store, with the part of pathlib.Path that the ledger needs.

    With a view, reads come from the view if it has the object; other reads and all writes go to the store.
    """

    scheme: str
    key: str
    """The bucket and the key, without leading or trailing slashes."""
    view: View | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    def __reduce__(self) -> Any:
        return RemotePath, (self.scheme, self.key)

    # names

    def __truediv__(self, name: str) -> "RemotePath":
        return self._at("/".join([self.key, *(part for part in str(name).split("/") if part)]))

    def _at(self, key: str) -> "RemotePath":
        inside = self.view is not None and (key == self.view.root or key.startswith(f"{self.view.root}/"))
        return replace(self, key=key, view=self.view if inside else None)

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(self.key)

    @property
    def bucket(self) -> str:
        return self.key.split("/")[0]

    @property
    def parts(self) -> tuple[str, ...]:
        return self._pure.parts

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def parent(self) -> "RemotePath":
        """The parent folder; a bucket is its own parent."""
        return self._at(self.key.rpartition("/")[0] or self.key)

    def with_name(self, name: str) -> "RemotePath":
        return self._at(str(self._pure.with_name(name)))

    def with_suffix(self, suffix: str) -> "RemotePath":
        return self._at(str(self._pure.with_suffix(suffix)))

    def relative_to(self, other: "RemotePath") -> PurePosixPath:
        return self._pure.relative_to(other._pure)

    def absolute(self) -> "RemotePath":
        return self

    def resolve(self) -> "RemotePath":
        return self

    # looking

    @property
    def _store(self) -> Any:
        return _store(self.scheme, self.bucket, os.getpid(), endpoint_of(self.scheme))

    @property
    def region(self) -> str:
        """The region of an S3 bucket."""
        with _translated(self):
            return str(self._store.region)

    def exists(self) -> bool:
        return self._kind() != "NotFound"

    def is_file(self) -> bool:
        return self._kind() == "File"

    def is_dir(self) -> bool:
        """False if an object has exactly this name, even if others are below it."""
        return self._kind() == "Directory"

    @retried
    def _kind(self) -> str:
        if self.view is not None:
            return (
                "File" if self.key in self.view.files else "Directory" if self.key in self.view.folders else "NotFound"
            )
        with _translated(self):
            found: str = self._store.get_file_info(self.key).type.name
            return found

    @retried
    def stat(self) -> Stat:
        """Raises FileNotFoundError for a missing object, and also for a folder."""
        if self.view is not None:
            found = self.view.files.get(self.key)
        else:
            with _translated(self):
                found = _stat(self._store.get_file_info(self.key))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return found

    def iterdir(self) -> Iterator["RemotePath"]:
        if self.view is not None:
            names: Iterable[str] = self.view.folders.get(self.key, {})
        else:
            names = (info.base_name for info in self._listed(recursive=False))
        return (self / name for name in names)

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Supports names and `*`, such as `*/sweep.yaml`; unlike on disk, `*` matches a leading dot."""
        first, _, rest = pattern.partition("/")
        if rest and not any(sign in first for sign in "*?["):
            return (self / first).glob(rest)
        if not rest and not any(sign in first for sign in "*?["):
            return iter([self / first] if (self / first).exists() else [])
        matching = (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, first))
        return (found for path in matching for found in path.glob(rest)) if rest else matching

    @retried
    def _listed(self, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        with _translated(self):
            selector = FileSelector(self.key, allow_not_found=True, recursive=recursive)
            found: list[Any] = self._store.get_file_info(selector)
            return found

    # reading and writing

    @retried
    def read_bytes(self) -> bytes:
        """The content of one version. The client asks for the size and then reads that many bytes, so an object that is
        replaced in between would be cut off; therefore the size is checked again."""
        if self.view is not None and self.key in self.view.contents:
            return self.view.contents[self.key]
        if self.view is not None and self.key not in self.view.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        with _translated(self):
            while True:
                with self._store.open_input_file(self.key) as file:
                    data: bytes = file.read()
                info = self._store.get_file_info(self.key)
                if info.size == len(data):
                    return data
                if not info.is_file:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    @retried
    def write_bytes(self, data: bytes) -> None:
        with _translated(self):
            stream = self._store.open_output_stream(self.key)
            stream.write(data)
            stream.close()

    def touch(self) -> None:
        if not self.is_file():
            self.write_bytes(b"")

    @retried
    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with _translated(self):
                self._store.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    @retried
    def replace(self, target: "RemotePath") -> None:
        """Copies and then removes: in between, both objects exist."""
        with _translated(self):
            self._store.copy_file(self.key, target.key)
        self.unlink(missing_ok=True)

    @retried
    def rmdir(self) -> None:
        """Removes the marker that a store's client leaves when the last object of a folder is deleted."""
        if files_below(self):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(self))
        with _translated(self):
            if self._store.get_file_info(self.key).type.name == "Directory":
                self._store.delete_dir(self.key)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: a folder exists as soon as an object is in it."""


Place = Path | RemotePath


def _stat(info: Any) -> Stat | None:
    return Stat(info.size, info.mtime_ns or 0) if info.is_file else None


@functools.lru_cache(maxsize=16)
def _store(scheme: str, bucket: str, pid: int, endpoint: str) -> Any:
    """The client of a bucket, one per process: a forked process must not use its parent's connections."""
    from pyarrow import fs

    host: dict[str, Any] = {}
    if endpoint:
        host = {"endpoint_override": urlsplit(endpoint).netloc, "scheme": urlsplit(endpoint).scheme}
    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=ANSWER_S), anonymous=bool(endpoint), **host)
    return fs.S3FileSystem(
        region=_region(bucket, endpoint), background_writes=False, allow_delayed_open=True,
        connect_timeout=CONNECT_S, request_timeout=ANSWER_S, **host,
    )  # fmt: skip


def endpoint_of(scheme: str) -> str:
    """The endpoint from the variables of the clouds' own tools; empty for the cloud itself."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if scheme == "s3" else ("STORAGE_EMULATOR_HOST",)
    found = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return found if not found or "://" in found else f"http://{found}"


def without_password(url: str) -> str:
    return re.sub(r"//[^/]*@", "//***@", url)


def _region(bucket: str, endpoint: str) -> str | None:
    """The region of the bucket, which may differ from the machine's. Errors are translated where the client is used."""
    from pyarrow.fs import resolve_s3_region

    if endpoint:
        return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    found: str | None = resolve_s3_region(bucket)
    return found


# ---- errors of a store


_DENIED = re.compile(r"ACCESS_DENIED|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED|Permission denied"
                     r"|EXPIRED_TOKEN|ExpiredToken|TokenRefreshRequired|ALL_ACCESS_DISABLED")  # fmt: skip
_BAD_KEY = re.compile(r"INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT"
                      r"|INVALID_SIGNATURE|INCOMPLETE_SIGNATURE|MISSING_AUTHENTICATION_TOKEN")  # fmt: skip
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|Bucket '.*' not found|The specified bucket does not exist", re.IGNORECASE)
_NETWORK = re.compile(r"NETWORK_CONNECTION|curlCode: \d+|Could not (connect|resolve)|Couldn't (connect|resolve)")
_SECRETS = {"s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role",
            "gs": "GOOGLE_APPLICATION_CREDENTIALS, or: gcloud auth application-default login"}  # fmt: skip


@contextmanager
def _translated(path: RemotePath) -> Iterator[None]:
    """Turns failures of a store's client into those of a disk: one line, with an errno and the object's address."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except (OSError, ValueError) as error:
        raise _translation(" ".join(str(error).split()), path) from error


def _translation(text: str, path: RemotePath) -> OSError:
    if _NO_BUCKET.search(text):
        return OSError(errno.ENXIO, f"bucket '{path.bucket}' does not exist", str(path))
    if _BAD_KEY.search(text):
        return PermissionError(errno.EACCES, f"the credentials are not valid ({_SECRETS[path.scheme]})", str(path))
    if _DENIED.search(text):
        return PermissionError(errno.EACCES, f"access denied; {_credentials(path.scheme)}", str(path))
    if _NETWORK.search(text):
        where = without_password(endpoint_of(path.scheme)) or "the cloud"
        return OSError(errno.ENETUNREACH, f"{where} cannot be reached ({_reason(text)})", str(path))
    return OSError(errno.EIO, _reason(text), str(path))


def _reason(text: str) -> str:
    """The part of a client's message that says why."""
    return re.sub(r"^When .*?: (?=AWS Error )|curlCode: \d+, |\(Request ID: [^)]*\)|\[errno \d+\]", "", text).strip()[
        :300
    ]


def _credentials(scheme: str) -> str:
    found = {"s3": ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
                    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
             "gs": ("GOOGLE_APPLICATION_CREDENTIALS",)}[scheme]  # fmt: skip
    folder = Path.home() / {"s3": ".aws", "gs": ".config/gcloud"}[scheme]
    if any(os.environ.get(name) for name in found) or folder.is_dir():
        return "the credentials lack the permission"
    return f"no credentials are set on this machine ({_SECRETS[scheme]})"


# ---- places


_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")


def place(text: "str | Place") -> Place:
    """The folder or object store that the user named. Raises ConfigError for anything else."""
    if isinstance(text, RemotePath):
        return text
    uri = _URI.fullmatch(str(text))
    if uri is None:
        return Path(text)
    scheme, rest = uri["scheme"].lower(), uri["rest"]
    if any(sign in rest for sign in "@?#"):
        raise ConfigError(
            f"--storage: an address {scheme}://... must not contain keys, passwords or options ('@', '?', '#'); "
            f"credentials come from {_SECRETS.get(scheme, 'the environment')}"
        )
    if scheme not in SCHEMES:
        raise ConfigError(f"--storage {text}: {scheme}:// is not supported; must be {SUPPORTED}")
    parts = [part for part in rest.split("/") if part]
    if not parts or not _BUCKET.fullmatch(parts[0]):
        raise ConfigError(f"--storage {text}: must name a bucket: {scheme}://BUCKET/FOLDER")
    if any(part in (".", "..") for part in parts) or not rest.isprintable():
        raise ConfigError(f"--storage {text}: must not have '.', '..' or control characters between slashes")
    return RemotePath(scheme, "/".join(parts))


def assert_reachable(path: Place) -> None:
    """Raises ConfigError when an object store cannot be used, and Unavailable when it does not answer, within seconds
    and before anything starts."""
    if not isinstance(path, RemotePath):
        return
    from pyarrow.fs import FileSelector

    try:
        with _translated(path):
            path._store.get_file_info(FileSelector(path.key, allow_not_found=True))
            known = path._store.get_file_info(path.bucket).type.name != "NotFound"
    except OSError as error:
        kind = Unavailable if error.errno in TRANSIENT else ConfigError
        raise kind(f"{path}: {error.strerror}") from None
    if not known:
        raise ConfigError(f"{path}: bucket '{path.bucket}' does not exist; create it, or choose another --storage")


def assert_writable(path: Place) -> None:
    """Raises ConfigError when nothing can be written there; leaves nothing behind except the folder."""
    assert_reachable(path)
    try:
        make_folder(path)
        (path / ".writable").touch()
        (path / ".writable").unlink()
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another --storage") from None


def make_folder(path: Place, parents: bool = True) -> None:
    """Creates a folder, with its parents unless `parents` is False: then a deleted parent raises FileNotFoundError. The
    parent of each new folder is synced, so that its content survives a crash of the machine."""
    if isinstance(path, RemotePath) or path.exists():
        return
    if parents:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- many objects at once


def viewed(path: Place, names: Collection[str] = ()) -> Place:
    """A snapshot of a folder for reading. For an object store it takes one listing and fetches the objects of these
    names in parallel; a local folder is fast enough without it."""
    if not isinstance(path, RemotePath) or path.view is not None:
        return path
    view = View(path.key, {info.path: Stat(info.size, info.mtime_ns or 0) for info in _objects(path)})
    seen = replace(path, view=view)
    fetch([seen._at(key) for key in view.files if key.rpartition("/")[2] in names])
    return seen


def files_below(path: RemotePath) -> list[RemotePath]:
    return [RemotePath(path.scheme, info.path) for info in _objects(path)]


def sizes_below(path: Place) -> dict[str, int]:
    """Bytes of each file below a folder, by relative name; links, pipes and devices are not files. Files that vanish
    meanwhile are skipped."""
    if isinstance(path, RemotePath):
        return {str(PurePosixPath(info.path).relative_to(path.key)): info.size for info in _objects(path)}
    return dict(_sizes_on_disk(str(path), ""))


def _sizes_on_disk(folder: str, prefix: str) -> Iterator[tuple[str, int]]:
    for entry in list(os.scandir(folder)):
        with suppress(FileNotFoundError, NotADirectoryError):
            if entry.is_dir(follow_symlinks=False):
                yield from _sizes_on_disk(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                yield prefix + entry.name, entry.stat(follow_symlinks=False).st_size


def _objects(path: RemotePath) -> list[Any]:
    return [info for info in path._listed(recursive=True) if info.is_file]


def fetch(paths: Iterable[Place]) -> None:
    """Reads objects of a view in parallel, so that reading them later is free."""
    wanted = [path for path in paths if isinstance(path, RemotePath) and path.view is not None]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for path, data in zip(wanted, pool.map(_content, wanted), strict=True):
            if data is not None and path.view is not None:
                path.view.contents[path.key] = data


def _content(path: RemotePath) -> bytes | None:
    """The content; None if the object has vanished or cannot be read, so that a later read reports the error."""
    try:
        return path.read_bytes()
    except OSError:
        return None


@retried
def read_bytes(path: Place, most: int = LARGEST_FILE, start: int = 0) -> bytes:
    """The content from byte `start` on. Raises OSError if the path is not a file, or too large to be ours."""
    if not isinstance(path, Path):
        return path.read_bytes()[start:]
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size - start > most:
            raise OSError(errno.EFBIG, f"larger than {most / 1e9:g} GB, so it is not a file of a run", str(path))
        file.seek(start)
        return file.read()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file open for reading. Raises OSError for a pipe or a device, which could block forever."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a file but a pipe, a socket or a device", str(path))
        yield file


def read_if_there(path: Place) -> bytes | None:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None


# ---- temporary names


@functools.cache
def _here() -> tuple[str, str]:
    """The boot of this machine, and its process namespace, for example a container."""
    boot, space = socket.gethostname(), socket.gethostname()
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        space += os.readlink("/proc/self/ns/pid")
    return tuple(hashlib.sha256(text.encode()).hexdigest()[:6] for text in (boot, space))  # type: ignore[return-value]


def owner() -> str:
    """Part of the names of this process's temporary files, so that others can recognise them if it is killed."""
    return "-".join([*_here(), str(os.getpid())])


@dataclass(frozen=True)
class Owner:
    """The owner of a temporary file, read from its name."""

    boot: str
    space: str
    pid: int

    @property
    def is_of_this_boot(self) -> bool:
        return self.boot == _here()[0]

    @property
    def is_known(self) -> bool:
        """Whether its processes are visible from here."""
        return (self.boot, self.space) == _here()

    @property
    def is_dead(self) -> bool:
        """Whether the process is certainly dead."""
        return self.is_known and not psutil.pid_exists(self.pid)


OWNER = "(?P<boot>[0-9a-f]{6})-(?P<space>[0-9a-f]{6})-(?P<pid>[0-9]{1,10})"


def owner_in(found: re.Match[str]) -> Owner | None:
    """The owner in a name; None if the name has none."""
    return Owner(found["boot"], found["space"], int(found["pid"])) if found["pid"] else None


# ---- beside a store


def cache_folder() -> Path:
    """Where this user's files may be kept that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "disentune"


def scratch(path: RemotePath) -> Path:
    """A local folder for files of clients that cannot use object stores."""
    name = f"disentune-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    for folder in (cache_folder(), Path(tempfile.gettempdir()) / f"disentune-{os.getuid()}"):
        try:
            (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            return folder / name
        except OSError as error:
            failure = error
    raise failure


_clock_offsets: dict[str, float] = {}


def clock_offset(scheme: str) -> float | None:
    """Seconds by which the store's clock is ahead of ours, queried once; None if unknown."""
    if scheme not in _clock_offsets and (found := _asked_offset(scheme)) is not None:
        _clock_offsets[scheme] = found
    return _clock_offsets.get(scheme)


def _asked_offset(scheme: str) -> float | None:
    url = endpoint_of(scheme) or {"s3": "https://s3.amazonaws.com", "gs": "https://storage.googleapis.com"}[scheme]
    try:
        try:
            with urlopen(Request(url, method="HEAD"), timeout=CONNECT_S) as answer:
                date = answer.headers["Date"]
        except HTTPError as refusal:  # its headers have a date too
            date = refusal.headers["Date"]
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (OSError, TypeError, ValueError):
        return None


def shown(path: Any) -> str:
    """A path as the user would type it; the address of one in an object store."""
    if not isinstance(path, Path):
        return str(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

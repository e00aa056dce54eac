"""Conditional writes to an object store: a write succeeds only while the object is still the version that was read.

pyarrow's clients cannot send conditions (apache/arrow#44281), so these requests are made here. For S3 they are signed
with the keys of the environment, of a profile or of the machine's role; for Google Cloud Storage google-auth has the
token. Other kinds of credentials raise `Unsupported`.
"""

import configparser
import errno
import functools
import hashlib
import hmac
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from disentune.files.storage import ANSWER_S, CONNECT_S, RemotePath, clock_offset, endpoint_of, retried

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

CONFLICT, FAILED, TOO_MANY, NOT_IMPLEMENTED = 409, 412, 429, 501
ROLE_S = 1.0
"""How long the metadata service may take to answer; a machine without a role does not answer."""
Auth = Callable[["PreparedRequest"], "PreparedRequest"]


class Unsupported(Exception):
    """Conditional writes cannot be used with this store; the text is the reason."""


class Seen(NamedTuple):
    """An object at one moment. `version` is the store's: an ETag or a generation."""

    data: bytes | None
    version: str


ABSENT = Seen(None, "")


@retried
def read(path: RemotePath) -> Seen:
    """The object and its version; `ABSENT` if there is none."""
    answer = _sent(path)
    if answer.status_code == 404:
        return ABSENT
    if not answer.ok:
        raise Unsupported(f"HTTP {answer.status_code}")
    return Seen(answer.content, _read_version(path, answer))


@retried
def write(path: RemotePath, data: bytes, version: str) -> Seen:
    """Replaces `version` of the object, or creates the object if `version` is empty. Returns the object as it is then,
    with `data` or with what another process wrote. A write whose answer was lost is recognised by its data."""
    answer = _sent(path, data, version)
    if answer.ok:
        return Seen(data, _written_version(path, answer))
    if answer.status_code not in ((CONFLICT, FAILED, 404) if version else (CONFLICT, FAILED)):
        raise Unsupported(f"HTTP {answer.status_code}")
    found = read(path)
    if found.version == version:  # two writes met, and the store refused both
        raise OSError(errno.EAGAIN, "another write was in progress", str(path))
    return found


@retried
def is_enforced(path: RemotePath, data: bytes) -> bool:
    """Whether the store refuses to create an object that exists. A store that ignores conditions writes `data`
    again."""
    return _sent(path, data, "").status_code in (CONFLICT, FAILED)


def _sent(path: RemotePath, data: bytes | None = None, version: str = "") -> "Response":
    """The answer to a GET, or with data to a write under the condition that the object has this version."""
    import requests

    method, url, headers, auth = (_to_s3 if path.scheme == "s3" else _to_google)(path, data, version)
    timeout = (CONNECT_S, ANSWER_S)
    try:
        answer = requests.request(
            method, url, data=data, headers=headers, auth=auth, timeout=timeout, allow_redirects=False
        )
    except (requests.exceptions.SSLError, requests.exceptions.ProxyError) as error:
        raise Unsupported(str(error)[:200]) from error
    except requests.RequestException as error:
        raise OSError(errno.ENETUNREACH, str(error)[:300], str(path)) from error
    if answer.status_code == TOO_MANY or (answer.status_code >= 500 and answer.status_code != NOT_IMPLEMENTED):
        raise OSError(errno.EIO, f"HTTP {answer.status_code}", str(path))
    return answer


def _read_version(path: RemotePath, answer: "Response") -> str:
    return _named("ETag" if path.scheme == "s3" else "x-goog-generation", answer.headers)


def _written_version(path: RemotePath, answer: "Response") -> str:
    return _named("ETag", answer.headers) if path.scheme == "s3" else _named("generation", answer.json())


def _named(name: str, values: Any) -> str:
    if not values.get(name):
        raise Unsupported(f"the answer has no {name}")
    return str(values[name])


# ---- Google Cloud Storage


def _to_google(path: RemotePath, data: bytes | None, version: str) -> tuple[str, str, dict[str, str], Auth]:
    """A request of the JSON API."""
    endpoint = endpoint_of("gs")
    bucket, _, key = path.key.partition("/")
    host, objects = endpoint or "https://storage.googleapis.com", f"storage/v1/b/{quote(bucket, safe='')}/o"
    auth = functools.partial(_with_token, token="" if endpoint else _token())
    if data is None:
        return "GET", f"{host}/{objects}/{quote(key, safe='')}?alt=media", {}, auth
    query = f"uploadType=media&name={quote(key, safe='')}&ifGenerationMatch={version or 0}"
    return "POST", f"{host}/upload/{objects}?{query}", {"Content-Type": "application/json"}, auth


def _with_token(request: "PreparedRequest", token: str) -> "PreparedRequest":
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _token() -> str:
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.auth.transport.requests import Request

    try:
        credentials = _google_credentials(os.getpid())
        if not credentials.valid:
            credentials.refresh(Request())
    except TransportError as error:
        raise OSError(errno.ENETUNREACH, str(error)[:300]) from error
    except GoogleAuthError as error:
        raise Unsupported(str(error)[:200]) from error
    return str(credentials.token)


@functools.lru_cache(maxsize=1)
def _google_credentials(pid: int) -> Any:
    import google.auth

    return google.auth.default(scopes=["https://www.googleapis.com/auth/devstorage.read_write"])[0]


# ---- S3


class Keys(NamedTuple):
    id: str
    secret: str
    token: str = ""


def _to_s3(path: RemotePath, data: bytes | None, version: str) -> tuple[str, str, dict[str, str], Auth]:
    region, keys = path.region, _keys()
    endpoint = urlsplit(endpoint_of("s3") or f"https://s3.{region}.amazonaws.com{'.cn' * region.startswith('cn-')}")
    url = f"{endpoint.scheme}://{endpoint.netloc}/{quote(path.key, safe='/~')}"
    auth = functools.partial(_with_signature, keys=keys, region=region)
    if data is None:
        return "GET", url, {}, auth
    condition = {"If-Match": version} if version else {"If-None-Match": "*"}
    return "PUT", url, {"Content-Type": "application/json", **condition}, auth


def _with_signature(request: "PreparedRequest", keys: Keys, region: str) -> "PreparedRequest":
    now = datetime.fromtimestamp(time.time() + (clock_offset("s3") or 0.0), UTC)
    body = request.body if isinstance(request.body, bytes) else b""
    conditions = {name: str(request.headers[name]) for name in ("If-Match", "If-None-Match") if name in request.headers}
    request.headers.update(signed(str(request.method), str(request.url), conditions, body, keys, region, now))
    return request


def signed(
    method: str, url: str, headers: dict[str, str], body: bytes, keys: Keys, region: str, when: datetime
) -> dict[str, str]:
    """`headers` and those that sign them: AWS Signature Version 4, for an address without a query."""
    parts, moment = urlsplit(url), when.strftime("%Y%m%dT%H%M%SZ")
    headers = {
        **headers,
        "Host": parts.netloc.rpartition("@")[2],
        "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
        "x-amz-date": moment,
        **({"x-amz-security-token": keys.token} if keys.token else {}),
    }
    lines = sorted((name.lower(), value.strip()) for name, value in headers.items())
    names = ";".join(name for name, _ in lines)
    request = [method, parts.path, "", *(f"{name}:{value}" for name, value in lines), "", names]
    digest = hashlib.sha256("\n".join([*request, headers["x-amz-content-sha256"]]).encode()).hexdigest()
    scope = [moment[:8], region, "s3", "aws4_request"]
    secret = functools.reduce(_hmac, scope, f"AWS4{keys.secret}".encode())
    signature = _hmac(secret, "\n".join(["AWS4-HMAC-SHA256", moment, "/".join(scope), digest])).hex()
    credential = "/".join([keys.id, *scope])
    return {
        **headers,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}",
    }


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _keys() -> Keys:
    """The first credentials found, in the order of AWS's own tools."""
    found = _environment_keys() or _profile_keys()
    if found is not None:
        return found
    others = ("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
              "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
    if name := next((name for name in others if os.environ.get(name)), ""):
        raise Unsupported(f"requests cannot be signed with the credentials of {name}")
    return _role_keys()


def _environment_keys() -> Keys | None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    found = Keys(*(os.environ.get(name, "") for name in names))
    return found if found.id and found.secret else None


def _profile_keys() -> Keys | None:
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    profiles = configparser.RawConfigParser()
    try:
        profiles.read(path)
        found = profiles[os.environ.get("AWS_PROFILE") or "default"]
        return Keys(found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token", ""))
    except (configparser.Error, KeyError, OSError, UnicodeDecodeError):
        return None


def _role_keys() -> Keys:
    """The keys of the machine's role, from its metadata service."""
    import requests

    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise Unsupported("no credentials to sign requests with")
    service = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
    roles = f"{service.rstrip('/')}/latest/meta-data/iam/security-credentials/"
    with requests.Session() as session:
        session.trust_env = False  # it cannot be reached through a proxy
        try:
            token = session.put(f"{service.rstrip('/')}/latest/api/token", timeout=ROLE_S,
                                headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})  # fmt: skip
            headers = {"X-aws-ec2-metadata-token": token.text}
            role = session.get(roles, headers=headers, timeout=ROLE_S)
            found = session.get(roles + role.text.splitlines()[0], headers=headers, timeout=ROLE_S).json()
            return Keys(found["AccessKeyId"], found["SecretAccessKey"], found["Token"])
        except (requests.RequestException, LookupError, TypeError, ValueError) as error:
            raise Unsupported("no credentials to sign requests with") from error

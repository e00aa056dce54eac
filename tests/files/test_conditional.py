"""Writes on condition that nobody else has written: signed as AWS asks, for S3 and for Google Cloud Storage."""

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from disentune.files import conditional, storage
from disentune.files.conditional import ABSENT, Keys, Seen, Unsupported
from disentune.files.storage import place

DOCUMENTED = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
WHEN = datetime(2013, 5, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("method", "name", "headers", "body", "signature"),
    [
        ("GET", "test.txt", {"Range": "bytes=0-9"}, b"",
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("PUT", "test%24file.text",
         {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
         b"Welcome to Amazon S3.", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
    ],
)  # fmt: skip
def test_signatures_are_those_of_the_examples_in_the_documentation_of_s3(method, name, headers, body, signature):
    """'Authenticating Requests: Using the Authorization Header', examples GET Object and PUT Object."""
    url = f"https://examplebucket.s3.amazonaws.com/{name}"
    found = conditional.signed(method, url, headers, body, DOCUMENTED, "us-east-1", WHEN)
    assert found["Authorization"].endswith(f"Signature={signature}")


@pytest.fixture(params=["s3", "gs"])
def path(request, object_store, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", object_store.url)
    return place(f"{request.param}://bucket/a folder/lock+ä")


def test_an_object_is_created_once_and_replaced_only_by_one_who_has_seen_it(path, object_store):
    assert conditional.read(path) == ABSENT
    first = conditional.write(path, b"one", "")
    assert conditional.read(path) == first == Seen(b"one", first.version)
    assert conditional.write(path, b"two", "") == first, "it is there already"
    second = conditional.write(path, b"two", first.version)
    assert second.data == b"two"
    assert conditional.write(path, b"three", first.version) == second, "this version has been replaced"
    assert object_store["a folder/lock+ä"] == b"two"


def test_an_object_that_was_deleted_is_not_replaced(path, object_store):
    first = conditional.write(path, b"one", "")
    object_store.buckets["bucket"].clear()
    assert conditional.write(path, b"two", first.version) == ABSENT
    assert object_store.names == []


def test_a_store_is_known_to_keep_conditions_because_it_refuses_to_create_an_object_twice(path):
    conditional.write(path, b"one", "")
    assert conditional.is_enforced(path, b"one")


@pytest.mark.slow
def test_of_many_writers_that_have_seen_the_same_version_one_wins(path):
    writers = 8
    for _ in range(5):
        version, at_once, seen = conditional.read(path).version, threading.Barrier(writers), {}

        def write(name, version=version, at_once=at_once, seen=seen):
            at_once.wait()
            seen[name] = conditional.write(path, f"{version}{name}".encode(), version).data

        threads = [threading.Thread(target=write, args=(name,)) for name in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(data == f"{version}{name}".encode() for name, data in seen.items()) == 1
        assert len(set(seen.values())) == 1, "the losers see who won"


@pytest.mark.parametrize("fault", [500, 503, 429, "drop"])
def test_a_hiccup_is_tried_again(path, object_store, monkeypatch, fault):
    monkeypatch.setattr(storage, "FIRST_WAIT_S", 0.001)
    conditional.write(path, b"one", "")
    object_store.faults = [fault, fault]
    assert conditional.read(path).data == b"one"
    assert object_store.faults == []


def test_an_answer_that_is_not_understood_is_no_conditional_write(object_store):
    path = place("s3://bucket/lock")
    object_store.conditions = "refused"
    with pytest.raises(Unsupported, match="HTTP 501"):
        conditional.write(path, b"one", "")
    object_store.refused = "GET"
    with pytest.raises(Unsupported, match="HTTP 403"):
        conditional.read(path)


# ---- where keys come from


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No credentials at all."""
    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "WEB_IDENTITY_TOKEN_FILE",
             "CONTAINER_CREDENTIALS_RELATIVE_URI", "CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
    for name in names:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path / "credentials"


def test_keys_come_from_the_environment_before_a_profile(nowhere, monkeypatch):
    nowhere.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n"
                       "[mine]\naws_access_key_id = d\naws_secret_access_key = e\naws_session_token = f\n")  # fmt: skip
    assert conditional._keys() == Keys("a", "b%c")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert conditional._keys() == Keys("d", "e", "f")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "g")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "h")
    assert conditional._keys() == Keys("g", "h")


def test_without_keys_it_says_what_it_cannot_use(nowhere, monkeypatch):
    with pytest.raises(Unsupported, match="no credentials to sign requests with"):
        conditional._keys()
    monkeypatch.setenv("AWS_PROFILE", "sso")
    with pytest.raises(Unsupported, match="AWS_PROFILE"):
        conditional._keys()


def test_keys_come_from_the_role_of_the_machine(nowhere, monkeypatch):
    class Metadata(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.answer("token" if self.path == "/latest/api/token" else "")

        def do_GET(self):
            keys = {"AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c"}
            texts = {"": "role", "role": json.dumps(keys)}
            known = self.headers["X-aws-ec2-metadata-token"] == "token"
            self.answer(texts[self.path.removeprefix("/latest/meta-data/iam/security-credentials/")] if known else "")

        def answer(self, text):
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        assert conditional._keys() == Keys("a", "b", "c")
        server.shutdown()
        thread.join()


def test_a_token_of_the_role_is_signed_too():
    keys = DOCUMENTED._replace(token="a token")
    found = conditional.signed("GET", "http://there:9000/bucket/key", {}, b"", keys, "us-east-1", WHEN)
    assert found["x-amz-security-token"] == "a token"
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token," in found["Authorization"]
    assert found["Host"] == "there:9000"


def test_requests_are_dated_by_the_stores_clock(object_store, monkeypatch):
    """A signature that is a quarter of an hour off is refused."""
    object_store.ahead_s = 7200.0
    monkeypatch.setattr(storage, "_clock_offsets", {})
    assert abs(storage.clock_offset("s3") - 7200) < 5
    dates = []
    real = conditional.signed
    monkeypatch.setattr(conditional, "signed", lambda *arguments: dates.append(arguments[-1]) or real(*arguments))
    conditional.read(place("s3://bucket/lock"))
    assert abs(dates[0].timestamp() - object_store.now) < 60

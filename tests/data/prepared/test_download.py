"""Downloads against a real client and a local server that misbehaves in every way a public one does."""

import gzip
import hashlib
import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bad_server import Reply, bad_server, closed_port
from disentune.data.prepared import download as downloading
from disentune.data.prepared.download import download
from disentune.errors import DataError
from disentune.plugin import File
from processes import wait_until

CONTENT = np.random.default_rng(0).bytes(400_000)
OTHER = np.random.default_rng(1).bytes(400_000)
MD5 = hashlib.md5(CONTENT).hexdigest()
GOOD = Reply(CONTENT)
HALF = Reply(CONTENT, stop=200_000)
MONDAY, TUESDAY = "Mon, 06 Jan 2025 10:00:00 GMT", "Tue, 07 Jan 2025 10:00:00 GMT"
COMMAND = "disentune data prepare thing"
TRIES = 4


@pytest.fixture(autouse=True)
def waited(monkeypatch) -> list[float]:
    """No proxy, no patience; gives the waits that would have been."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    waits: list[float] = []
    monkeypatch.setattr(downloading, "sleep", waits.append)
    monkeypatch.setattr(downloading, "WAITS_S", (1, 2, 4))
    return waits


@pytest.fixture
def server():
    with bad_server() as running:
        yield running


class Told:
    """Progress, as it was said."""

    def __init__(self) -> None:
        self.says: list[tuple[str, int, int | None]] = []
        self.connecting: list[str] = []

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what.startswith("connecting"):
            self.connecting.append(what)
        else:
            self.says.append((what, done, total))


def fetched(folder: Path, *urls: str, md5: str = "", name: str = "thing.bin", say: Told | None = None) -> bytes:
    """The bytes; nothing but the file may be left."""
    path = download(File(name, urls, md5), folder, COMMAND, say or Told())
    assert path == folder / name
    assert {one.name for one in folder.iterdir()} <= {name, f".{name}.lock"}
    return path.read_bytes()


def refusal(folder: Path, *urls: str, md5: str = "", name: str = "thing.bin") -> str:
    with pytest.raises(DataError) as raised:
        download(File(name, urls, md5), folder, COMMAND, Told())
    assert not (folder / name).exists()
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    return str(raised.value)


def part_bytes(folder: Path) -> bytes:
    return (folder / "thing.bin.part").read_bytes()


def interrupted(folder: Path, url: str, monkeypatch) -> int:
    """Leaves what a process leaves that is stopped half-way; gives how many bytes."""

    def stop(what: str, done: int, total: int | None) -> None:
        if done >= 200_000:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(downloading, "SAY_EVERY_S", 0)
        with pytest.raises(KeyboardInterrupt):
            download(File("thing.bin", (url,)), folder, COMMAND, stop)
    size = len(part_bytes(folder))
    assert 200_000 <= size < len(CONTENT)
    return size


# ---- what goes well


def test_the_file_is_there_with_its_bytes(server, tmp_path):
    assert fetched(tmp_path / "new" / "folder", server.serves("/f", GOOD), md5=MD5) == CONTENT
    assert server.asked("Range") == [None]
    assert server.asked("Accept-Encoding") == ["identity"]


def test_an_md5_may_be_written_in_capitals(server, tmp_path):
    assert fetched(tmp_path, server.serves("/f", GOOD), md5=MD5.upper()) == CONTENT


def test_a_body_of_unknown_length_is_whole_when_its_chunks_are(server, tmp_path):
    told = Told()
    assert fetched(tmp_path, server.serves("/f", Reply(CONTENT, chunked=True)), say=told) == CONTENT
    assert told.says[0][2] is None
    assert told.says[-1] == ("downloading thing.bin", 400_000, 400_000)


def test_the_file_gets_its_name_when_all_its_bytes_are_on_the_disk(server, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        downloading.os, "fsync", lambda file: synced.append((os.fstat(file).st_size, (tmp_path / "thing.bin").exists()))
    )
    fetched(tmp_path, server.serves("/f", Reply(CONTENT[:100])))
    assert synced == [(100, False)]


@pytest.mark.parametrize("md5", ["", MD5])
def test_a_file_that_is_there_is_not_fetched_again(server, tmp_path, md5):
    (tmp_path / "thing.bin").write_bytes(CONTENT)
    assert fetched(tmp_path, server.serves("/f", GOOD), md5=md5) == CONTENT
    assert server.log == []


def test_a_file_with_the_wrong_hash_is_replaced(server, tmp_path):
    (tmp_path / "thing.bin").write_bytes(OTHER)
    assert fetched(tmp_path, server.serves("/f", GOOD), md5=MD5) == CONTENT


def test_redirects_are_followed(server, tmp_path):
    server.serves("/there", GOOD)
    url = server.serves("/here", Reply(status=302, headers={"Location": "/there"}))
    assert fetched(tmp_path, url) == CONTENT
    assert [request.path for request in server.log] == ["/here", "/there"]


def test_a_gz_that_is_called_encoded_stays_as_it_is(server, tmp_path):
    packed = gzip.compress(CONTENT)
    cut, good = (Reply(packed, headers={"Content-Encoding": "gzip"}, stop=stop) for stop in (150_000, None))
    assert fetched(tmp_path, server.serves("/f", cut, good), name="thing.tar.gz") == packed
    assert server.asked("Range") == [None, "bytes=150000-"]


def test_progress_is_reported_now_and_then_and_at_the_end(server, tmp_path, monkeypatch):
    told = Told()
    assert len(fetched(tmp_path, server.serves("/f", Reply(bytes(20_000_000))), say=told)) == 20_000_000
    assert len(told.says) < 40  # there are 306 blocks
    assert told.says[-1] == ("downloading thing.bin", 20_000_000, 20_000_000)
    monkeypatch.setattr(downloading, "SAY_EVERY_S", 0.01)
    slow = Told()
    fetched(tmp_path / "slow", server.serves("/s", Reply(CONTENT, pause_s=0.01)), say=slow)
    assert len(slow.says) >= 5
    assert [done for _, done, _ in slow.says] == sorted(done for _, done, _ in slow.says)
    assert {total for *_, total in slow.says} == {400_000}


def test_the_mirror_is_reported_at_once_and_without_secrets(server, tmp_path):
    told = Told()
    good = server.serves("/f", GOOD)
    fetched(tmp_path, f"http://me:secret@127.0.0.1:{closed_port()}/f?key=1", good, say=told)
    first, second = told.connecting
    assert re.fullmatch(r"connecting to 127\.0\.0\.1:\d+ for thing\.bin", first)
    assert second == f"connecting to 127.0.0.1:{server.server_port} for thing.bin"


def test_the_proxy_of_the_environment_is_used(server, tmp_path, monkeypatch):
    url = server.serves("http://data.invalid/f", GOOD)
    monkeypatch.setenv("http_proxy", url.removesuffix("http://data.invalid/f"))
    assert fetched(tmp_path, "http://data.invalid/f") == CONTENT


# ---- broken connections


@pytest.mark.parametrize("how", ["end", "reset", "stall"])
def test_a_broken_download_continues_where_it_broke(server, tmp_path, how, monkeypatch):
    monkeypatch.setattr(downloading, "TIMEOUT_S", 0.5)
    broken = Reply(CONTENT, stop=200_000, how=how)
    assert fetched(tmp_path, server.serves("/f", broken, GOOD), md5=MD5) == CONTENT
    first, second = server.asked("Range")
    start = int(second.removeprefix("bytes=").removesuffix("-"))
    assert first is None
    assert start == 200_000 if how == "end" else 0 < start <= 200_000
    assert server.asked("If-Range") == [None, '"one"']


def test_chunks_that_end_too_early_are_not_the_whole(server, tmp_path):
    broken = Reply(CONTENT, chunked=True, stop=200_000)
    assert fetched(tmp_path, server.serves("/f", broken, GOOD)) == CONTENT
    assert server.asked("Range") == [None, "bytes=200000-"]


def test_every_progress_resets_the_waits(server, tmp_path, waited):
    pieces = [Reply(CONTENT, stop=50_000)] * 7
    assert fetched(tmp_path, server.serves("/f", *pieces, GOOD)) == CONTENT
    assert server.asked("Range")[1:] == [f"bytes={50_000 * piece}-" for piece in range(1, 8)]
    assert waited == [1] * 7


@pytest.mark.parametrize("stops", [(200_000,), (200_000, 100_000, 150_000)])
def test_a_server_that_never_gets_further_is_given_up(server, tmp_path, stops):
    cannot_resume = [Reply(CONTENT, stop=stop, ranges=False) for stop in stops]
    assert ": the connection broke\n" in refusal(tmp_path, server.serves("/f", *cannot_resume))
    assert len(server.log) == TRIES


@pytest.mark.slow
def test_a_silent_server_is_reported_as_silent(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloading, "TIMEOUT_S", 0.3)
    assert ": no data for 0.3 s\n" in refusal(tmp_path, server.serves("/f", Reply(CONTENT, stop=0, how="stall")))
    assert len(server.log) == TRIES


def test_a_server_that_hangs_up_is_asked_again(server, tmp_path):
    assert fetched(tmp_path, server.serves("/f", Reply(status=0), Reply(status=0), GOOD)) == CONTENT


def test_a_refused_connection_is_tried_again_then_reported(tmp_path, waited):
    assert ": Connection refused\n" in refusal(tmp_path, f"http://127.0.0.1:{closed_port()}/f")
    assert waited == [1, 2, 4]


def test_an_unknown_host_is_reported(tmp_path, monkeypatch):
    def lookup(*arguments):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert "  http://nobody.invalid/f: Name or service not known\n" in refusal(tmp_path, "http://nobody.invalid/f")


# ---- statuses


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_passing_trouble_is_waited_for(server, tmp_path, status, waited):
    assert fetched(tmp_path, server.serves("/f", Reply(status=status), Reply(status=status), GOOD)) == CONTENT
    assert waited == [1, 2]


def test_a_trouble_that_does_not_pass_ends_with_its_name(server, tmp_path, waited):
    assert ": answers 503 Service Unavailable\n" in refusal(tmp_path, server.serves("/f", Reply(status=503)))
    assert len(server.log) == TRIES
    assert waited == [1, 2, 4]


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("after", "wait"),
    [
        ("7", 7),
        ("0", 1),
        ("100000", 120),
        ("soon", 1),
        ("-5", 1),
        ("Mon, 01 Jan 0001 00:00:00 -0000", 1),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999999999", 1),
    ],
)
def test_a_server_may_say_how_long_to_wait_within_limits(server, tmp_path, after, wait, waited):
    busy = Reply(status=429, headers={"Retry-After": after})
    assert fetched(tmp_path, server.serves("/f", busy, GOOD)) == CONTENT
    assert waited == [wait]


def test_a_server_may_say_when_to_try_again(server, tmp_path, waited):
    busy = Reply(status=503, headers={"Retry-After": in_seconds(30)})
    assert fetched(tmp_path, server.serves("/f", busy, GOOD)) == CONTENT
    assert waited == [pytest.approx(30, abs=5)]  # a date has whole seconds, and a busy machine takes some


@pytest.mark.parametrize("status", [401, 403, 404, 410, 416, 204])
def test_what_will_not_change_sends_to_the_next_mirror_at_once(server, tmp_path, status, waited):
    bad, good = server.serves("/bad", Reply(status=status)), server.serves("/good", GOOD)
    assert fetched(tmp_path, bad, good) == CONTENT
    assert [request.path for request in server.log] == ["/bad", "/good"]
    assert waited == []


@pytest.mark.parametrize("kind", ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml"])
def test_a_web_page_is_not_the_file(server, tmp_path, kind):
    page = server.serves("/page", Reply(b"<html>log in</html>", headers={"Content-Type": kind}))
    assert fetched(tmp_path, page, server.serves("/good", GOOD)) == CONTENT
    assert "/page: returns a web page instead of the file\n" in refusal(tmp_path / "alone", page)


def test_a_file_that_was_compressed_on_the_way_is_refused(server, tmp_path):
    url = server.serves("/f", Reply(gzip.compress(CONTENT), headers={"Content-Encoding": "gzip"}))
    assert ": compresses the file although asked not to\n" in refusal(tmp_path, url)


@pytest.mark.parametrize("chunked", [False, True])
def test_an_empty_file_is_refused(server, tmp_path, chunked):
    assert ": returns an empty file\n" in refusal(tmp_path, server.serves("/f", Reply(b"", chunked=chunked)))


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/f", "http://[half"])
def test_only_the_web_is_followed(server, tmp_path, target, waited):
    leads = server.serves("/f", Reply(status=302, headers={"Location": target}))
    assert ": is not an http or https address, or redirects to one that is not\n" in refusal(tmp_path, leads)
    assert ": is not an http or https address, or redirects to one that is not\n" in refusal(tmp_path, target)
    assert waited == []


def test_a_redirect_loop_is_reported(server, tmp_path):
    assert ": redirects in a circle\n" in refusal(
        tmp_path, server.serves("/f", Reply(status=302, headers={"Location": "/f"}))
    )


# ---- what another process has left


def test_an_interrupted_download_is_continued(server, tmp_path, monkeypatch):
    url = server.serves("/f", GOOD)
    size = interrupted(tmp_path, url, monkeypatch)
    assert part_bytes(tmp_path) == CONTENT[:size]
    told = Told()
    assert fetched(tmp_path, url, say=told) == CONTENT
    assert server.asked("Range") == [None, f"bytes={size}-"]
    assert size < told.says[0][1] <= 400_000


def test_an_etag_of_any_letters_is_sent_back_as_it_came(server, tmp_path, monkeypatch):
    url = server.serves("/f", Reply(CONTENT, etag='"caf\xe9\t, W/\\"'))
    size = interrupted(tmp_path, url, monkeypatch)
    assert fetched(tmp_path, url) == CONTENT
    assert server.asked("Range") == [None, f"bytes={size}-"]


def test_a_date_serves_where_there_is_no_strong_etag(server, tmp_path, monkeypatch):
    url = server.serves("/f", Reply(CONTENT, etag='W/"weak"', date=MONDAY))
    size = interrupted(tmp_path, url, monkeypatch)
    assert fetched(tmp_path, url) == CONTENT
    assert server.asked("Range") == [None, f"bytes={size}-"]
    assert server.asked("If-Range") == [None, MONDAY]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Reply(CONTENT, etag='"one"'), Reply(OTHER, etag='"two"')),
        (Reply(CONTENT, etag='"one"'), Reply(OTHER, etag='"two"', conditions=False)),
        (Reply(CONTENT, etag=None, date=MONDAY), Reply(OTHER, etag=None, date=TUESDAY)),
        (Reply(CONTENT, etag=None, date=MONDAY), Reply(OTHER, etag=None, date=TUESDAY, conditions=False)),
        (Reply(CONTENT, etag=None, date=MONDAY), Reply(OTHER[:300_000], etag=None, date=MONDAY)),
        (Reply(CONTENT, etag=None), Reply(OTHER, etag=None)),
        (Reply(CONTENT, etag='W/"weak"'), Reply(OTHER, etag='W/"weak"')),
        (Reply(CONTENT, etag=None), Reply(OTHER, etag=None, conditions=False)),
    ],
    ids=["etag", "etag unheeded", "date", "date unheeded", "length", "nothing", "weak", "nothing unheeded"],
)
def test_two_versions_are_never_glued(server, tmp_path, monkeypatch, before, after):
    interrupted(tmp_path, server.serves("/f", before), monkeypatch)
    assert fetched(tmp_path, server.serves("/f", after)) == after.content


def test_another_mirror_does_not_continue_the_file(server, tmp_path, monkeypatch):
    interrupted(tmp_path, server.serves("/one", GOOD), monkeypatch)
    assert fetched(tmp_path, server.serves("/two", Reply(OTHER))) == OTHER
    assert server.asked("Range") == [None, None]


def test_the_mirror_that_was_at_it_goes_first(server, tmp_path, monkeypatch):
    first, second = server.serves("/one", GOOD), server.serves("/two", GOOD)
    size = interrupted(tmp_path, second, monkeypatch)
    assert fetched(tmp_path, first, second) == CONTENT
    assert [request.path for request in server.log] == ["/two", "/two"]
    assert server.asked("Range") == [None, f"bytes={size}-"]


def test_a_server_without_ranges_starts_from_zero(server, tmp_path, monkeypatch):
    url = server.serves("/f", Reply(CONTENT, ranges=False))
    interrupted(tmp_path, url, monkeypatch)
    assert fetched(tmp_path, url) == CONTENT


@pytest.mark.parametrize(
    "span",
    ["bytes 0-399999/400000", "bytes 200001-399999/400000", "bytes 200000-399999/400001", "bytes */400000", "x", None],
)
def test_bytes_of_another_place_are_not_taken(server, tmp_path, span):
    wrong = Reply(CONTENT, status=206, headers={"Content-Range": span})
    assert fetched(tmp_path, server.serves("/f", HALF, wrong, GOOD)) == CONTENT
    assert server.asked("Range") == [None, "bytes=200000-", None]


def test_the_end_may_be_left_open_by_the_server(server, tmp_path):
    rest = Reply(CONTENT, headers={"Content-Range": "bytes 200000-399999/*"})
    assert fetched(tmp_path, server.serves("/f", HALF, rest)) == CONTENT


def test_a_server_may_give_less_than_was_asked_for(server, tmp_path):
    some = Reply(CONTENT[200_000:300_000], status=206, headers={"Content-Range": "bytes 200000-299999/400000"})
    assert fetched(tmp_path, server.serves("/f", HALF, some, GOOD)) == CONTENT
    assert server.asked("Range") == [None, "bytes=200000-", "bytes=300000-"]


def test_a_whole_part_only_needs_its_name(server, tmp_path, monkeypatch):
    url = server.serves("/f", GOOD)
    interrupted(tmp_path, url, monkeypatch)
    (tmp_path / "thing.bin.part").write_bytes(CONTENT)
    told = Told()
    assert fetched(tmp_path, url, md5=MD5, say=told) == CONTENT
    assert server.asked("Range") == [None, "bytes=400000-"]
    assert told.says == [("downloading thing.bin", 400_000, 400_000)]


@pytest.mark.parametrize("headers", [{}, {"Content-Range": None}])
def test_a_part_longer_than_the_file_starts_again(server, tmp_path, monkeypatch, headers):
    interrupted(tmp_path, server.serves("/f", GOOD), monkeypatch)
    (tmp_path / "thing.bin.part").write_bytes(CONTENT + b"more")
    assert fetched(tmp_path, server.serves("/f", Reply(CONTENT, headers=headers), GOOD)) == CONTENT
    assert server.asked("Range") == [None, "bytes=400004-", None]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": "x"}', "\xff"])
def test_a_part_of_unknown_origin_starts_again(server, tmp_path, monkeypatch, text):
    url = server.serves("/f", GOOD)
    interrupted(tmp_path, url, monkeypatch)
    (tmp_path / "thing.bin.part.json").write_bytes(text.encode("latin-1"))
    assert fetched(tmp_path, url) == CONTENT
    assert server.asked("Range") == [None, None]


@pytest.mark.parametrize("bad", [Reply(status=404), Reply(b"<p>", headers={"Content-Type": "text/html"}, ranges=False)])
def test_a_mirror_that_refuses_leaves_the_part(server, tmp_path, monkeypatch, bad):
    url = server.serves("/f", GOOD)
    size = interrupted(tmp_path, url, monkeypatch)
    server.serves("/f", bad)
    refusal(tmp_path, url)
    assert len(part_bytes(tmp_path)) == size
    server.serves("/f", GOOD)
    assert fetched(tmp_path, url) == CONTENT
    assert server.asked("Range") == [None, f"bytes={size}-", f"bytes={size}-"]


SLOW = """
import sys
from pathlib import Path
from disentune.data.prepared.download import download
from disentune.plugin import File
download(File("thing.bin", (sys.argv[1],)), Path(sys.argv[2]), "command", lambda what, done, total: None)
"""


@pytest.mark.slow
def test_the_successor_of_a_killed_process_continues(server, tmp_path):
    url = server.serves("/f", Reply(CONTENT * 10, pause_s=0.05), Reply(CONTENT * 10))
    part = tmp_path / "thing.bin.part"
    process = subprocess.Popen([sys.executable, "-c", SLOW, url, str(tmp_path)])
    try:
        wait_until(lambda: process.poll() is not None or (part.exists() and part.stat().st_size > 100_000), "bytes")
    finally:
        process.kill()
        assert process.wait() == -9
    size = part.stat().st_size
    assert fetched(tmp_path, url) == CONTENT * 10
    assert 100_000 < size < len(CONTENT) * 10
    assert server.asked("Range") == [None, f"bytes={size}-"]


def test_a_second_process_waits_and_fetches_nothing(server, tmp_path):
    url = server.serves("/f", Reply(CONTENT, pause_s=0.01))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fetched, tmp_path, url)
        wait_until(lambda: (tmp_path / "thing.bin.part").exists() or first.done(), "the first bytes")
        assert pool.submit(fetched, tmp_path, url).result() == first.result() == CONTENT
    assert len(server.log) == 1


# ---- hashes


def test_a_wrong_hash_is_tried_once_more_from_zero(server, tmp_path):
    url = server.serves("/f", Reply(OTHER), GOOD)
    assert fetched(tmp_path, url, md5=MD5) == CONTENT
    assert server.asked("Range") == [None, None]


def test_a_part_that_was_damaged_is_thrown_away(server, tmp_path, monkeypatch):
    url = server.serves("/f", GOOD)
    size = interrupted(tmp_path, url, monkeypatch)
    (tmp_path / "thing.bin.part").write_bytes(bytes(size))
    assert fetched(tmp_path, url, md5=MD5) == CONTENT
    assert server.asked("Range") == [None, f"bytes={size}-", None]


def test_a_wrong_mirror_is_left_for_the_next(server, tmp_path):
    wrong, good = server.serves("/wrong", Reply(OTHER)), server.serves("/good", GOOD)
    assert fetched(tmp_path, wrong, good, md5=MD5) == CONTENT
    assert [request.path for request in server.log] == ["/wrong", "/wrong", "/good"]


def test_hashes_are_reported_when_no_mirror_has_the_right_file(server, tmp_path):
    message = refusal(tmp_path, server.serves("/f", Reply(OTHER)), md5=MD5)
    assert f"/f: its md5 must be {MD5}, but is {hashlib.md5(OTHER).hexdigest()}\n" in message
    assert {path.name for path in tmp_path.iterdir()} <= {".thing.bin.lock"}


# ---- messages and limits


def test_the_contents_decide_where_a_mirror_may_have_republished_the_file(server, tmp_path):
    """Its own md5 is then another; a file that is there already may come from that mirror."""
    url = server.serves("/f", Reply(OTHER))
    file = File("thing.bin", (url,), MD5, republished=(url,))
    assert download(file, tmp_path, COMMAND, Told()).read_bytes() == OTHER
    assert download(file, tmp_path, COMMAND, Told()).read_bytes() == OTHER
    assert len(server.asked("Range")) == 1


def test_the_other_mirrors_of_a_republished_file_are_held_to_its_md5(server, tmp_path):
    gone, damaged = server.serves("/gone", Reply(b"", status=404)), server.serves("/damaged", Reply(OTHER))
    file = File("thing.bin", (gone, damaged), MD5, republished=(gone,))
    with pytest.raises(DataError, match=f"/damaged: its md5 must be {MD5}"):
        download(file, tmp_path, COMMAND, Told())


def test_the_last_mirror_of_a_republished_file_stays_the_last_although_it_was_at_it(server, tmp_path, monkeypatch):
    last = server.serves("/last", GOOD)
    interrupted(tmp_path, last, monkeypatch)
    first = server.serves("/first", Reply(OTHER))
    file = File("thing.bin", (first, last), MD5, republished=(first,))
    assert download(file, tmp_path, COMMAND, Told()).read_bytes() == OTHER


def test_the_message_lists_every_mirror_and_the_way_out(server, tmp_path):
    gone, shut = server.serves("/a/gone", Reply(status=404)), server.serves("/b/shut", Reply(status=403))
    assert refusal(tmp_path, gone, shut) == (
        "thing.bin could not be downloaded:\n"
        f"  {gone}: answers 404 Not Found\n"
        f"  {shut}: answers 403 Forbidden\n"
        "download thing.bin by hand, then run: disentune data prepare thing --from FILE"
    )


@pytest.mark.parametrize(
    "reply", [Reply(status=404), Reply(status=0), Reply(CONTENT, stop=5, ranges=False), Reply(OTHER)]
)
def test_secrets_are_neither_printed_nor_stored(server, tmp_path, reply):
    url = server.serves("/f?token=hidden", reply).replace("http://", "http://user:pass@word@")
    message = refusal(tmp_path, url, md5=MD5)
    assert f"  http://127.0.0.1:{server.server_port}/f: " in message
    kept = "".join(path.read_text("latin-1") for path in tmp_path.glob("*.json"))
    assert not any(secret in message + kept for secret in ("hidden", "user", "word"))


def test_a_refused_connection_reveals_no_secrets(tmp_path):
    message = refusal(tmp_path, f"http://user:word@127.0.0.1:{closed_port()}/f?token=hidden#part")
    assert not any(secret in message for secret in ("hidden", "user", "word", "part"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "../a", "a\\b", "a\0b", "a\nb"])
def test_only_a_plain_name_is_written(server, tmp_path, name):
    with pytest.raises(DataError, match="plain name") as raised:
        download(File(name, (server.serves("/f", GOOD),)), tmp_path / "folder", COMMAND, Told())
    assert repr(name) in str(raised.value)
    assert not (tmp_path / "folder").exists()
    assert server.log == []


def with_free(monkeypatch, free: int) -> None:
    monkeypatch.setattr(downloading.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


def test_a_disk_that_is_too_small_is_reported_before_anything_is_written(server, tmp_path, monkeypatch):
    with_free(monkeypatch, 399_999)
    one, two = server.serves("/one", GOOD), server.serves("/two", GOOD)
    message = refusal(tmp_path, one, two)
    assert f"{tmp_path / 'thing.bin'} needs 0.4 MB more, but only 0.4 MB are free" in message
    assert [request.path for request in server.log] == ["/one"]
    assert not (tmp_path / "thing.bin.part").exists()
    with_free(monkeypatch, 400_000)
    assert fetched(tmp_path, one) == CONTENT


@pytest.mark.parametrize("ranges", [True, False])
def test_what_is_there_needs_no_more_room(server, tmp_path, monkeypatch, ranges):
    """Going on writes only the rest; starting again first gives back what the part has taken."""
    url = server.serves("/f", Reply(CONTENT, ranges=ranges))
    size = interrupted(tmp_path, url, monkeypatch)
    with_free(monkeypatch, 400_000 - size - 1)
    refusal(tmp_path, url)
    with_free(monkeypatch, 400_000 - size)
    assert fetched(tmp_path, url) == CONTENT


def test_a_disk_that_fills_up_is_reported(server, tmp_path):
    (tmp_path / "thing.bin.part").symlink_to("/dev/full")
    assert refusal(tmp_path, server.serves("/f", GOOD)) == (
        f"{tmp_path / 'thing.bin'} cannot be written (No space left on device); fix that, then run: {COMMAND}"
    )
    assert len(server.log) == 1


def test_a_folder_that_cannot_be_made_is_reported(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/below/thing.bin cannot be written \(Not a directory\)"):
        download(File("thing.bin", (server.serves("/f", GOOD),)), tmp_path / "file" / "below", COMMAND, Told())
    assert server.log == []

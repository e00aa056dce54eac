"""Who may ask the dashboard, and what its answers allow a browser to do."""

import pytest

from dashboard_client import TOKEN


@pytest.fixture
def client(dashboard, make_run, tmp_path):
    make_run()
    return dashboard(tmp_path / "runs")


def test_without_the_token_every_address_says_where_to_find_it(client):
    for path in ("/", "/page/main.js", "/api/runs", "/api/nowhere", "/etc/passwd"):
        found = client.ask(path, cookies={})
        assert found.status_code == 403
        assert "Open the address that `disentune dashboard` printed" in found.text


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü", "\x00"])
def test_a_wrong_token_is_refused_in_the_address_and_in_the_cookie(client, token):
    assert client.ask("/", {"token": token}, cookies={}).status_code == 403
    if token.isascii() and token.isprintable():
        assert client.ask("/", cookies={client.guard.cookie: token}).status_code == 403


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_cannot_read(client):
    found = client.ask("/", {"token": TOKEN, "a": "b c"}, cookies={})
    assert (found.status_code, found.headers["location"]) == (303, "/?a=b+c")
    cookie = found.headers["set-cookie"]
    assert cookie.startswith(f"{client.guard.cookie}={TOKEN};")
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert client.ask("/", cookies={client.guard.cookie: TOKEN}).status_code == 200


def test_the_redirect_never_leaves_this_server(client):
    found = client.ask("//evil.example/x", {"token": TOKEN}, cookies={})
    assert found.headers["location"].startswith("/evil.example") or found.headers["location"] == "/x"
    assert not found.headers["location"].startswith("//")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8270", "127.0.0.1.evil.example:8270", "", "0.0.0.0"])
def test_another_name_of_this_server_is_refused_even_with_the_token(client, host):
    found = client.ask("/", headers={"Host": host})
    assert found.status_code == 403
    assert "127.0.0.1" in found.text


@pytest.mark.parametrize("host", ["127.0.0.1:8270", "localhost:1", "LOCALHOST", "[::1]:8270", "127.0.0.1"])
def test_the_names_of_this_machine_are_accepted_on_any_port(client, host):
    assert client.ask("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/page/style.css", "/api/runs", "/api/run?run=none", "/nowhere"])
def test_every_answer_forbids_foreign_and_inline_scripts_frames_and_guessing(client, path):
    headers = client.ask(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(client, method):
    found = client.ask("/api/runs", method=method)
    assert (found.status_code, found.json()["error"]) == (405, "this server only reads")

import pytest

from disentune.environment import without_secrets
from disentune.errors import ConfigError
from disentune.spec.settings import Wandb
from disentune.tracking.connection import api_key, base_url, connection

KEY = "k" * 40


@pytest.fixture
def nowhere(tmp_path):
    """An environment in which nobody has logged in."""
    return {"NETRC": str(tmp_path / "netrc"), "WANDB_CONFIG_DIR": str(tmp_path / "config")}


def made(wandb, environment):
    return connection(wandb, "quickstart", "quickstart/main", environment)


def test_a_sweep_without_wandb_tracks_nothing(nowhere):
    assert made(None, nowhere | {"WANDB_API_KEY": KEY}) is None
    assert made(Wandb(mode="disabled"), nowhere | {"WANDB_API_KEY": KEY}) is None


def test_auto_is_online_with_a_key_and_offline_without(nowhere):
    assert made(Wandb(), nowhere | {"WANDB_API_KEY": KEY}).online
    offline = made(Wandb(), nowhere)
    assert not offline.online
    line = offline.line("runs/quickstart/main")
    assert "offline (no key; set WANDB_API_KEY, or run: wandb login)" in line
    assert "disentune sync runs/quickstart/main" in line


@pytest.mark.parametrize(("wish", "online"), [("offline", False), ("online", True)])
def test_auto_heeds_the_mode_of_the_environment(nowhere, wish, online):
    assert made(Wandb(), nowhere | {"WANDB_API_KEY": KEY, "WANDB_MODE": wish}).online is online


def test_auto_is_silent_where_the_environment_disables_wandb(nowhere):
    assert made(Wandb(), nowhere | {"WANDB_API_KEY": KEY, "WANDB_MODE": "disabled"}) is None


def test_the_sweep_overrides_the_environment(nowhere):
    assert not made(Wandb(mode="offline"), nowhere | {"WANDB_API_KEY": KEY, "WANDB_MODE": "online"}).online


def test_online_without_a_key_is_refused_before_anything_starts(nowhere):
    with pytest.raises(ConfigError, match=r"needs a key .* run: wandb login"):
        made(Wandb(mode="online"), nowhere)


def test_names_come_from_the_sweep_unless_given(nowhere):
    usual = made(Wandb(), nowhere)
    assert (usual.project, usual.group, usual.entity) == ("quickstart", "quickstart/main", None)
    own = made(Wandb(project="p", entity="e", group="g", tags=["a"]), nowhere)
    assert (own.project, own.group, own.entity, own.tags) == ("p", "g", "e", ("a",))


def test_a_key_is_read_from_netrc_for_the_server_in_use(nowhere):
    with open(nowhere["NETRC"], "w") as file:
        file.write(f"machine example.org:8080\n  login user\n  password {KEY}\n")
    assert api_key("https://example.org:8080", nowhere) == KEY
    assert api_key("https://api.wandb.ai", nowhere) is None


def test_the_server_is_the_environments_else_what_wandb_login_left(nowhere, tmp_path):
    assert base_url(nowhere) == "https://api.wandb.ai"
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings").write_text("[default]\nbase_url = https://own.example/\n")
    assert base_url(nowhere) == "https://own.example"
    assert base_url(nowhere | {"WANDB_BASE_URL": "http://other:1"}) == "http://other:1"


def test_a_key_is_in_no_message_and_no_record(nowhere):
    with_key = nowhere | {"WANDB_API_KEY": KEY}
    assert KEY not in repr(made(Wandb(), with_key))
    assert without_secrets(f"refused {KEY} here", with_key) == "refused *** here"
    assert without_secrets(f"refused {KEY} here", nowhere) == f"refused {KEY} here"
    with open(nowhere["NETRC"], "w") as file:
        file.write(f"machine api.wandb.ai\n  login user\n  password {KEY}\n")
    assert KEY not in repr(made(Wandb(), nowhere))
    assert without_secrets(f"refused {KEY} here", nowhere) == "refused *** here"


def test_destinations_are_distinguished(nowhere):
    places = [
        made(Wandb(), nowhere),
        made(Wandb(), nowhere | {"WANDB_API_KEY": KEY}),
        made(Wandb(project="other"), nowhere | {"WANDB_API_KEY": KEY}),
        made(Wandb(entity="team"), nowhere | {"WANDB_API_KEY": KEY}),
        made(Wandb(), nowhere | {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://other:1"}),
    ]
    assert len({one.place for one in places}) == len(places)

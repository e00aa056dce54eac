"""Keys of the environment through a whole run on a real Ray, whose logs every user of the machine may read."""

import secrets
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from processes import Commands, family, wait_until
from simulator import sweep_file

pytestmark = [pytest.mark.ray, pytest.mark.long]
NAMES = ("WANDB_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

TALKATIVE = """
import os
from disentune.errors import DataError
from disentune.metrics import mig
from disentune.plugin import Metric

def score(*arguments):
    raise DataError(f"here is all: {dict(os.environ)}")

METRIC = Metric(name="talkative", params=mig.Params, score=score, keys=("talkative",))
"""


def test_no_key_comes_to_stand_in_rays_files_in_the_run_or_in_a_command(commands: Commands, tmp_path: Path) -> None:
    planted = {name: secrets.token_hex(20) for name in NAMES}
    commands.environment |= planted
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    metrics = "evaluation.metrics=[mig, 'talkative:METRIC']"
    command = commands.start("run", str(sweep_file(tmp_path)), "--set", "seeds=1", "--set", metrics)
    seen: set[str] = set()

    def ended() -> bool:
        for process in family(command):
            with suppress(psutil.Error):  # it has just ended
                seen.add(" ".join(process.cmdline()))
        return command.poll() is not None

    wait_until(ended, "the end of the run")
    assert command.stdout is not None
    said, rays = command.stdout.read(), Path(commands.environment["RAY_TMPDIR"])
    assert command.returncode == 0, said
    assert any("raylet" in words for words in seen)
    assert list(rays.rglob("raylet.out"))
    assert "here is all" in said
    files = [path for folder in (rays, tmp_path) for path in folder.rglob("*") if path.is_file()]
    texts = {str(path): path.read_bytes() for path in files} | {"what is said": said.encode()}
    texts |= {words: words.encode() for words in seen}
    assert [where for where, text in texts.items() if any(key.encode() in text for key in planted.values())] == []

"""Arrays of a user's own that are to be scored, damaged in every way: a table, or an error that names the file."""

import io
from pathlib import Path
from random import Random

import numpy as np
import pytest

from disentune.errors import ConfigError, DataError
from disentune.results.arrays import read_arrays
from fuzz.commands import called, complaint
from fuzz.containers import damaged_npz
from fuzz.trying import inputs, wrongs

RNG = np.random.default_rng(0)
ARRAYS = {
    "codes": RNG.normal(size=(40, 3)),
    "factors": RNG.integers(0, 3, (40, 2)),
    "logvars": RNG.normal(size=(40, 3)),
}
KINDS = ["f8", "f2", "i8", "u1", "?", "c8", "U3", "S2", "M8[s]", "O"]
SHAPES = [(), (0,), (40,), (0, 3), (40, 0), (39, 3), (40, 3, 2), (1, 3), (2, 1), (40, 1), (3, 40)]
NUMBERS = [np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324, 2.0**63, -1.5, 1e18]


def strange(rng: Random) -> bytes:
    """Damaged bytes, or sound ones of another type, shape or content."""
    if rng.random() < 0.5:
        return damaged_npz(ARRAYS, rng)
    arrays = {name: array.copy() for name, array in ARRAYS.items()}
    name = rng.choice(list(arrays))
    kind = rng.random()
    if kind < 0.4:
        arrays[name] = np.zeros(rng.choice(SHAPES), rng.choice([arrays[name].dtype.str, *KINDS]))
    elif kind < 0.8:
        changed = arrays[name].astype(float)
        changed[rng.randrange(40)] = rng.choice(NUMBERS)
        arrays[name] = changed
    else:
        arrays[name] = np.resize(np.array([rng.choice(NUMBERS)]), arrays[name].shape)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_strange_arrays_are_a_table_or_named(tmp_path: Path) -> None:
    path = tmp_path / "codes.npz"

    def verdict(content: bytes) -> str:
        path.write_bytes(content)
        try:
            read_arrays(path)
        except (DataError, ConfigError) as error:
            return "" if str(path) in str(error) else f"names no file: {error}"
        return ""

    found = wrongs(inputs("arrays", 400, strange), verdict)
    assert not found, found


def test_the_command_scores_strange_arrays_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def verdict(content: bytes) -> str:
        Path("codes.npz").write_bytes(content)
        return complaint(called("score", "codes.npz", "--metrics", "mig,sap,mcc,active_units", "--json"))

    found = wrongs(inputs("score", 60, strange), verdict, lambda content: 5.0)
    assert not found, found

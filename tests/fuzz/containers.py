"""Damaged content in a sound container: checksums are right, so that the damage is met by whoever reads the content."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from fuzz.mutations import mutated_bytes

PLAIN = "{{'descr': {}, 'fortran_order': {}, 'shape': {}}}"
HEADERS = [
    *(PLAIN.format(kind, False, (3,)) for kind in ("'|O'", "[('a', '<i4')]", "'<M8[s]'", "'<U5'", "'<c8'", "'|V9'", 5)),
    *(PLAIN.format("'<f4'", False, size) for size in ((-1,), (True,), 3, "(3L,)", (2**63,), (10**12, 64), ("a",), [])),
    PLAIN.format("'<f4'", True, (3, 2)), PLAIN.format("('<f4', (10,))", False, (3,)), PLAIN.format("'<f4'", 0, (3,)),
    "__import__('os').system('true')", "(" * 900, "'" * 50, "[", "L", "", "    x", "1 if 1 else 2", "{'shape': ()}",
    "\x00", "{'descr': '', 'shape': (), 'x': 1}", "{'descr': 5}",
]  # fmt: skip
"""Of NumPy's arrays: they are read as Python."""


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def with_header(content: bytes, header: str) -> bytes:
    """The same numbers behind another description of them."""
    text = header.encode("latin-1", "replace")
    start = 10 + int.from_bytes(content[8:10], "little")
    return content[:8] + len(text).to_bytes(2, "little") + text + content[start:]


def zipped(members: Mapping[str, bytes], compressed: bool = False) -> bytes:
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def damaged_npz(arrays: Mapping[str, np.ndarray], rng: Random) -> bytes:
    """Its bytes, those of an array in it, an array's header, or an array's name."""
    members = {f"{name}.npy": npy(array) for name, array in arrays.items()}
    name = rng.choice(list(members))
    kind = rng.random()
    if kind < 0.25:
        return mutated_bytes(zipped(members, compressed=rng.random() < 0.5), rng)
    if kind < 0.55:
        members[name] = mutated_bytes(members[name][:128], rng) + members[name][128:]
    elif kind < 0.85:
        members[name] = with_header(members[name], rng.choice(HEADERS))
    else:
        content = members.pop(name)
        members |= {rng.choice(["x.npy", "x", "../x.npy", "é.npy", name[:-1], "codes.npy/"]): content}
    return zipped(members, compressed=rng.random() < 0.5)


def tarred(members: Mapping[str, bytes], **about: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for key, value in about.items():
                setattr(entry, key, value)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1)

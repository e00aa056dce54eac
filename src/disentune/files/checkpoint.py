"""A checkpoint as bytes: a first line that says what it is, the hash of the content, and the content."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from disentune.errors import TrialError, first_line

if TYPE_CHECKING:
    from torch import Tensor

MAGIC = b"disentune checkpoint 1\n"
LARGEST_CHECKPOINT = 2 * 10**10
"""Bytes: eight times what the largest network takes with its optimiser."""


def packed(state: Mapping[str, Any]) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    payload = buffer.getvalue()
    return MAGIC + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload


def payload_of(data: bytes, name: object) -> bytes:
    """The content. Raises TrialError with the file's name unless the bytes are exactly what was written."""
    magic, _, rest = data.partition(b"\n")
    digest, _, payload = rest.partition(b"\n")
    if magic + b"\n" != MAGIC or hashlib.sha256(payload).hexdigest().encode() != digest:
        raise TrialError(f"{name} is damaged")
    return payload


def unpacked(data: bytes, name: object) -> dict[str, Any]:
    """The state; nothing in the file is executed. Raises TrialError unless the bytes are exactly what was written."""
    import torch

    payload = payload_of(data, name)
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except Exception as error:  # a file that was made to look right fails in any way; nothing of it is run
        raise TrialError(f"{name} is not a checkpoint of disentune ({first_line(error)})") from None
    if not isinstance(state, dict):
        raise TrialError(f"{name} is not a checkpoint of disentune, but holds a {type(state).__name__}")
    return state


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """sha256 of a network's weights by name: the same whether a checkpoint also holds an optimiser or not."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()

"""The file by which a node's watcher says that the machine is about to be taken away. Standard library only."""

import tempfile
from pathlib import Path


def notice_path(node_id: str) -> Path:
    """Exists once this node, by Ray's name for it, is about to be taken away."""
    return Path(tempfile.gettempdir()) / f"disentune-notice-{node_id}"

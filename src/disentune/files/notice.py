"""The file that announces that the cloud is about to take this machine away. Standard library only."""

import tempfile
from pathlib import Path


def notice_path(node_id: str) -> Path:
    """A file that exists once the node with this id is about to be taken away."""
    return Path(tempfile.gettempdir()) / f"disentune-notice-{node_id}"

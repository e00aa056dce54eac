"""The nodes of the Ray that this process drives."""


def is_dead(node_id: str) -> bool:
    """Whether the cluster knows that a node is gone; it may take a minute to notice."""
    import ray

    if not node_id or not ray.is_initialized():
        return False
    return any(node["NodeID"] == node_id and not node["Alive"] for node in ray.nodes())


def own_node() -> str:
    """The id of the node that this process runs on; empty outside Ray."""
    import ray

    return ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""

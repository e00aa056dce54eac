"""Ranks types of machines for Ray's autoscaler: types that the cloud refused recently come last, spot types first.

Enable it on a cluster's head with RAY_AUTOSCALER_UTILIZATION_SCORER=disentune.cluster.fallback.score. Only Ray's older
autoscaler uses it (RAY_enable_autoscaler_v2=0). Without it, neither autoscaler switches from a refused type to another
type with the same resources: the older one records refusals, but its own rule ignores them, and the newer one (Ray
2.60) ranks a type lower only when a machine was granted and its Ray did not start, not when none was granted.
"""

from typing import Any

from disentune.driver.ray_internals import utilization_scorer

SPOT = "spot"
_own_score = utilization_scorer()  # at import, so that an autoscaler whose Ray lacks it fails when it starts


def score(
    resources: dict[str, Any], demands: list[dict[str, Any]], type_name: str, *, node_availability_summary: Any
) -> tuple[Any, ...] | None:
    """Ray's own score with two terms added; the type with the greatest score is started. None if the type cannot hold
    any of the demands.

    Whether a machine suits the demand counts more than whether it was refused: a CPU machine cannot replace a GPU.
    """
    own = _own_score(resources, demands, node_availability_summary=node_availability_summary)
    if own is None:
        return None
    suits, used = own[:2], own[2:]
    record = node_availability_summary.node_availabilities.get(type_name)
    refused = record is not None and not record.is_available
    return (*suits, not refused, *used, SPOT in type_name)

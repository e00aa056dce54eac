"""A Tune Trainable that runs segments in a worker, one after another in the same process."""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import ray
from ray import tune

from disentune.driver.ray_internals import preferring
from disentune.files.notice import notice_path
from disentune.learn import cuda
from disentune.runs.segment import Segment, StepReport, Unclean, work

SLICE_S = 1.0
"""How long a worker trains between reports to the driver; rows, checkpoints and stop requests do not wait for it."""


class SegmentTrainable(tune.Trainable):
    """State lives in the ledger, so Ray's own checkpoints are not used, and a reused worker starts clean."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        resources = json.loads(config["segment"])["settings"]["resources"]
        bundle = {"CPU": resources["cpu"], "GPU": resources["gpu"]}
        if config.get("home") is None:
            return tune.PlacementGroupFactory([bundle])
        return tune.PlacementGroupFactory([bundle], **preferring(config["home"]))

    def setup(self, config: dict[str, Any]) -> None:
        node_id = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        segment = Segment(**json.loads(config["segment"]))
        if not segment.settings["resources"]["gpu"]:
            cuda.hide()
        self._reports: Iterator[StepReport] = work(segment, node_id, notice_path(node_id).exists)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Always True: Tune does not report a trial whose worker could not be reset, and an exception here makes it
        lose count of its staged trials. A worker that is not clean fails in its first step instead: that ends the
        worker, and the trial gets a new one."""
        self._reports = iter(())
        held = cuda.release()
        self.setup(new_config)
        if held > cuda.LEAK_BYTES:
            self._reports = _refusal(held)
        return True

    def step(self) -> dict[str, Any]:
        began, rows, notes = time.monotonic(), [], []
        for report in self._reports:
            if report.row is not None:
                rows.append(report.row)
            if report.note:
                notes.append(report.note)
            if report.outcome is not None or time.monotonic() - began > SLICE_S:
                break
        return {
            "at_step": report.step,
            "rows": rows,
            "outcome": report.outcome,
            "note": "\n".join(notes),
            tune.result.DONE: report.outcome is not None,
        }

    def cleanup(self) -> None:
        """Frees the trial's memory."""
        self._reports = iter(())
        cuda.release()


def _refusal(held: int) -> Iterator[StepReport]:
    if held == sys.maxsize:
        raise Unclean("an error in the previous trial made the GPU unusable for this process")
    raise Unclean(f"the previous trial left {held >> 20} MB of GPU memory allocated in this process")
    yield

"""Whether a sweep can run on what a cluster file describes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from disentune.cluster.check.described import Cluster, Machine
from disentune.cluster.check.reading import Finding, error, warning
from disentune.errors import ConfigError
from disentune.spec import space
from disentune.spec.settings import Resources
from disentune.spec.sweepfile import SweepFile

PREPARE = r"disentune data prepare ([\w-]+)"


def findings(clusters: Sequence[Cluster], path: Path) -> Iterator[Finding]:
    try:
        sweep = space.read(path).sweep
    except ConfigError as reason:
        yield from (error(problem.where, problem.text) for problem in reason.problems)
        if not reason.problems:
            yield error(str(path), str(reason))
        return
    for cluster in clusters:
        yield from _fits(cluster, sweep)
        yield from _idle_gpus(cluster, sweep)
        yield from _data(cluster, sweep)


def _fits(cluster: Cluster, sweep: SweepFile) -> Iterator[Finding]:
    wanted = sweep.settings.resources
    kinds = [kind for kind in cluster.workers if kind.most] + [cluster.head] * (cluster.head.cpu != 0)
    if not any(_holds(kind, wanted) for kind in kinds):
        machines = "; ".join(kind.line() for kind in kinds) or "none"
        text = f"resources: a trial needs {wanted.cpu:g} CPU and {wanted.gpu:g} GPU, which no machine has: {machines}"
        yield error(sweep.where.get("resources", f"{sweep.file}:1"), text)


def _idle_gpus(cluster: Cluster, sweep: SweepFile) -> Iterator[Finding]:
    kinds = [kind for kind in cluster.workers if kind.most]
    if cluster.provider != "local" and kinds and not sweep.settings.resources.gpu and all(kind.gpu for kind in kinds):
        text = "resources: trials use no GPU, but you pay for one in every machine; use --set resources.gpu=0.25"
        yield warning(sweep.where.get("resources", f"{sweep.file}:1"), text)


def _holds(kind: Machine, wanted: Resources) -> bool:
    return (kind.cpu is None or kind.cpu >= wanted.cpu) and (kind.gpu is None or kind.gpu >= wanted.gpu)


def _data(cluster: Cluster, sweep: SweepFile) -> Iterator[Finding]:
    needed = _datasets(sweep)
    if not needed:
        return
    prepared = {match[1] for match, _ in cluster.matches(PREPARE, "worker")}
    where = sweep.where.get("trial", f"{sweep.file}:1")
    for name in sorted(needed - prepared):
        text = f"no setup command prepares {name}, so the first trial on each machine does while the GPU is idle"
        yield warning(where, f"{text}; add: disentune data prepare {name}")
    if not cluster.says(r"DISENTUNE_DATA=", "worker") and sweep.settings.data.root is None:
        yield error(
            where,
            f"{', '.join(sorted(needed))}: the workers need DISENTUNE_DATA, or the sweep needs data: {{root: ...}}",
        )


def _datasets(sweep: SweepFile) -> set[str]:
    """The data sets that are made from files; the others are drawn."""
    configs = (space.trial_config(flat, 0) for arm in sweep.arms for flat in space.corners(sweep, arm))
    return {one.dataset.name for one in configs if one.dataset.plugin.sources(one.dataset.params)}

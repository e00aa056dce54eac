"""`disentune cluster`: checks a cluster file, or a running cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import AsJson
from disentune.cli.terminal import err, out, print_json

if TYPE_CHECKING:
    from disentune.cluster.check import Checked
    from disentune.cluster.verify import Node, Verdict
    from disentune.spec.space import SweepPoints
    from disentune.spec.sweepfile import SweepFile

app = typer.Typer(name="cluster", help="Checks a cluster file, or a running cluster.", no_args_is_help=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The cluster file, for example cluster.yaml.")],
    sweep: Annotated[Path | None, typer.Option(help="Also check whether this sweep can run on the cluster.")] = None,
    as_json: AsJson = False,
) -> None:
    """Reports all problems of a cluster file before anything starts or costs money. Needs no network.

    Exit codes: 0 no errors; 2 errors.

    Example: disentune cluster check cluster.yaml --sweep sweeps/quickstart.yaml
    """
    from disentune.cluster.check import check as checked

    result = checked(file, sweep)
    if as_json:
        print_json([asdict(finding) for finding in result.findings])
    else:
        _show_findings(result)
    if result.errors:
        raise typer.Exit(2)


def _show_findings(result: Checked) -> None:
    width = max((len(finding.where) for finding in result.findings), default=0)
    for level, title in (("error", "errors:"), ("warning", "warnings:")):
        found = [finding for finding in result.findings if finding.level == level]
        for number, finding in enumerate(found):
            if number == 0:
                out.print(title, markup=False)
            out.print(f"  {finding.where:<{width}}  {finding.text}", markup=False)
    if result.findings:
        out.print(f"{_counted(result.errors, 'error')}, {_counted(len(result.findings) - result.errors, 'warning')}")
    if not result.errors:
        out.print(f"{result.description}\nnext: {result.next_command}", markup=False)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


@app.command()
def verify(
    address: Annotated[
        str, typer.Option(help="auto on a node of the cluster; elsewhere the dashboard of the head, http://HOST:8265.")
    ] = "auto",
    nodes: Annotated[int | None, typer.Option(min=1, help="The expected number of nodes, including the head.")] = None,
    storage: Annotated[
        str | None, typer.Option(envvar="DISENTUNE_STORAGE", help="Check that all nodes see this storage.")
    ] = None,
    sweep: Annotated[Path | None, typer.Option(help="Check that its data sets are prepared on every node.")] = None,
    working_dir: Annotated[Path | None, typer.Option(help="Folder with your own plug-ins that the sweep uses.")] = None,
    as_json: AsJson = False,
) -> None:
    """Checks every node of a running cluster: joined, same versions, same storage, data prepared.

    Examples: disentune cluster verify --nodes 3 --storage /shared/runs;
    disentune cluster verify --address http://127.0.0.1:8265 --sweep sweeps/quickstart.yaml
    """
    from disentune.cluster import submission
    from disentune.spec import space

    if working_dir is not None:
        submission.assert_small(working_dir)
        sys.path.insert(0, str(working_dir.resolve()))
    asked = space.read(sweep) if sweep is not None else None
    submission.assert_storage(storage)
    if "://" in address:
        verdict = _verdict_from_afar(address, nodes, storage, asked.sweep if asked else None, working_dir)
    else:
        verdict = _verdict(address, nodes, storage, asked)
    if as_json:
        print_json(verdict.as_json())
    else:
        _show(verdict)
    raise typer.Exit(2 if verdict.problems else 0)


def _say(text: str) -> None:
    err.print(text, markup=False)


def _verdict(address: str, nodes: int | None, storage: str | None, asked: SweepPoints | None) -> Verdict:
    from disentune.cluster.verify import verify
    from disentune.runs.preview import plan_afresh

    sources = plan_afresh(asked).sources if asked is not None else ()
    data_root = asked.sweep.settings.data.root if asked is not None else None
    return verify(address, nodes, storage, sources, data_root, _say)


def _verdict_from_afar(
    address: str, nodes: int | None, storage: str | None, sweep: SweepFile | None, working_dir: Path | None
) -> Verdict:
    """Runs the same command as a job on the head."""
    from disentune.cluster import submission
    from disentune.cluster.verify import Verdict

    if sweep is not None:
        submission.assert_plugins_sent(sweep, working_dir)
    arguments = ["cluster", "verify", "--address", "auto", "--json"]
    arguments += ["--nodes", str(nodes)] if nodes is not None else []
    arguments += ["--storage", storage] if storage is not None else []
    arguments += ["--sweep", submission.SWEEP_FILE] if sweep is not None else []
    client, lines = submission.connected(address), _Json(_say)
    code = submission.follow(client, submission.run_command(client, arguments, sweep, working_dir), lines, _say)
    if not lines.found:
        raise typer.Exit(code or 2)
    return Verdict.from_json(json.loads("\n".join(lines.found)))


class _Json:
    """Lines of a command's output: keeps them from the opening brace of the JSON on, and prints those before."""

    def __init__(self, say: Callable[[str], None]):
        self.say, self.found = say, list[str]()

    def __call__(self, line: str) -> None:
        if self.found or line == "{":
            self.found.append(line)
        else:
            self.say(line)


def _show(verdict: Verdict) -> None:
    from rich.table import Table

    columns = ("node", "address", "head", "CPUs", "GPUs", "versions", "storage", "data", "clock")
    table = Table(*columns, box=None, pad_edge=False)
    for node in verdict.nodes:
        table.add_row(*_cells(node))
    out.print(f"cluster at {verdict.address}", markup=False)
    out.print(table)
    for note in verdict.notes:
        out.print(f"note: {note}", markup=False)
    for problem in verdict.problems:
        out.print(f"problem: {problem}", markup=False)
    count = len(verdict.nodes)
    if not verdict.problems:
        out.print(f"{count} node{'s' if count != 1 else ''}, all checks passed")


def _cells(node: Node) -> tuple[str, ...]:
    head = ("yes, runs trials" if node.runs_trials else "yes") if node.is_head else ""
    size = f"{node.cpus:g}", f"{node.gpus:g}"
    if node.trouble:
        return (node.name, node.ip, head, *size, "no answer", "", "", "")
    known = ", ".join(f"{name} {node.versions[name]}" for name in ("disentune", "ray", "torch", "python"))
    free = "" if node.free_gb is None else f"{node.free_gb:,.0f} GB free"
    data = f"{len(node.missing)} missing" if node.missing else "ok"
    clock = f"{node.clock_s:+.0f} s" if node.clock_s else "ok"
    return (node.name, node.ip, head, *size, known, "wrong" if node.storage else free, data, clock)

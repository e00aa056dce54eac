"""`disentune cluster check`: reports every problem of a cluster file at once, before it starts or costs anything."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from disentune.cluster.check import kuberay, launcher, reading, rules, sweeps
from disentune.cluster.check.described import Cluster
from disentune.cluster.check.reading import Finding, Source
from disentune.errors import ConfigError, file_and_line
from disentune.files.documents import Document

__all__ = ["Checked", "Finding", "check"]


@dataclass(frozen=True)
class Checked:
    findings: list[Finding] = field(default_factory=list)
    """Errors first, then warnings, each in line order."""
    description: str = ""
    next_command: str = ""

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)


def check(path: Path, sweep: Path | None = None) -> Checked:
    """Checks a cluster file. Raises ConfigError if the file cannot be read or has an unknown format."""
    source = _read(path)
    documents = [document for document in source.documents if isinstance(document.value, dict)]
    ours = [document for document in documents if kuberay.is_ours(document)]
    if ours:
        return _checked(source, *_kubernetes(source, ours), sweep, f"kubectl apply -f {path}")
    if len(documents) > 1 or "provider" not in documents[0].value:
        raise ConfigError(
            f"{path} is not a cluster file: it needs `provider:`, or `kind:` with {' or '.join(kuberay.KINDS)}"
        )
    cluster, findings = _launched(source, documents[0])
    return _checked(source, [cluster], findings, sweep, launcher.next_command(cluster))


def _read(path: Path) -> Source:
    """Reads a file; the error for an unreadable file does not repeat any key in it."""
    try:
        return reading.read(path)
    except ConfigError as error:
        with suppress(OSError, UnicodeDecodeError):
            secrets = rules.secret_values(reading.beginning(path).decode())
            problems = [replace(one, text=_silenced(one.text, secrets)) for one in error.problems]
            raise ConfigError(error.subject, problems) from None
        raise


def _launched(source: Source, document: Document) -> tuple[Cluster, list[Finding]]:
    cluster = launcher.described(source, document)
    return cluster, [*launcher.validated(document), *launcher.own_rules(cluster, document)]


def _kubernetes(source: Source, documents: list[Document]) -> tuple[list[Cluster], list[Finding]]:
    clusters: list[Cluster] = []
    findings: list[Finding] = []
    for document in documents:
        findings += kuberay.validated(document)
        cluster = kuberay.described(source, document)
        findings += kuberay.own_rules(cluster, document)
        clusters += [cluster] if cluster is not None else []
    return clusters, findings


def _checked(
    source: Source, clusters: list[Cluster], findings: list[Finding], sweep: Path | None, command: str
) -> Checked:
    found = [*source.findings, *findings]
    for cluster in clusters:
        for rule in rules.RULES:
            found += rule(cluster)
    if sweep is not None:
        found += sweeps.findings(clusters, sweep)
    description = f"{source.file}: " + "; ".join(_description(cluster) for cluster in clusters)
    secrets = rules.secret_values(source.text)
    return Checked(_ordered(replace(one, text=_silenced(one.text, secrets)) for one in found), description, command)


def _silenced(text: str, secrets: list[str]) -> str:
    """A message may quote the file, but not a key in it."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _ordered(findings: Iterator[Finding]) -> list[Finding]:
    def place(finding: Finding) -> tuple[bool, str, int]:
        return finding.level != "error", *file_and_line(finding.where)

    return sorted(dict.fromkeys(findings), key=place)


def _description(cluster: Cluster) -> str:
    trials = "no trials" if cluster.head.cpu == 0 else "trials too"
    workers = ", ".join(kind.line() for kind in cluster.workers) or "no workers"
    gpus = f"; at most {cluster.most_gpus():g} GPUs" if any(kind.gpu for kind in cluster.workers) else ""
    return f"{cluster.provider}, head ({trials}), {workers}{gpus}"

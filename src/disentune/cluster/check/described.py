"""What a cluster file describes, in any format: machines, their commands and settings, images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from disentune.cluster.check.reading import Source

Role = Literal["head", "worker"]


@dataclass(frozen=True)
class Machine:
    """A kind of node. None: the file does not say, and Ray detects the value on the machine."""

    name: str
    where: str
    cpu: float | None = None
    gpu: float | None = None
    least: int = 0
    most: int = 0
    spot: bool = False

    def line(self) -> str:
        has = ", ".join(f"{amount:g} {kind}" for amount, kind in ((self.cpu, "CPU"), (self.gpu, "GPU")) if amount)
        return f"{self.name} ({self.least} to {self.most}{', spot' if self.spot else ''}{', ' if has else ''}{has})"


@dataclass(frozen=True)
class Instruction:
    """A command or a setting that nodes of some roles get."""

    text: str
    where: str
    roles: frozenset[Role]
    starts: bool = False
    """Whether it starts Ray, and not only prepares a node."""

    def shell(self) -> str:
        """The text as a shell reads it: without comments, with backslash-continued lines joined."""
        return re.sub(r"(^|[\s;])#[^\n]*", r"\1", re.sub(r"\\\n\s*", " ", self.text))


BOTH: frozenset[Role] = frozenset(("head", "worker"))


@dataclass
class Cluster:
    source: Source
    provider: str
    top: str
    """`file:line` to report for keys that are missing."""
    head: Machine
    workers: list[Machine]
    instructions: list[Instruction] = field(default_factory=list)
    images: list[Instruction] = field(default_factory=list)
    mounts: dict[str, tuple[Path, str]] = field(default_factory=dict)
    """Path on a node: path on this machine, and the `file:line` of the mount."""
    most: int | None = None
    """The maximum number of workers of all kinds together."""

    def matches(self, pattern: str, role: Role | None = None, starts: bool = False) -> Iterator[tuple[re.Match, str]]:
        """Each match in the instructions of a role, with its `file:line`."""
        for one in self.instructions:
            if (role is None or role in one.roles) and (one.starts or not starts):
                for match in re.finditer(pattern, one.shell()):
                    yield match, self.source.line_of(match[0].split("\n")[0], one.where)

    def says(self, pattern: str, role: Role | None = None, starts: bool = False) -> bool:
        return next(self.matches(pattern, role, starts), None) is not None

    def start_of(self, role: Role) -> str:
        """Where a role's Ray is started."""
        found = [where for _, where in self.matches(r"ray start", role, starts=True)]
        return (
            found[0]
            if found
            else next((one.where for one in self.instructions if one.starts and role in one.roles), self.top)
        )

    def most_gpus(self) -> float:
        """The largest number of GPUs that the cluster can have at once."""
        left, gpus = self.most if self.most is not None else sum(kind.most for kind in self.workers), 0.0
        for kind in sorted(self.workers, key=lambda kind: -(kind.gpu or 0)):
            count = min(kind.most, left)
            left, gpus = left - count, gpus + count * (kind.gpu or 0)
        return gpus

"""What a cluster file describes, whatever its form: machines, what they are told, images."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from disentune.cluster.check.reading import Source

Role = Literal["head", "worker"]


@dataclass(frozen=True)
class Machine:
    """A kind of node. None: the file does not say, Ray finds out on the machine."""

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
class Told:
    """A command or a setting that nodes of some roles get."""

    text: str
    where: str
    roles: frozenset[Role]
    starts: bool = False
    """Whether it starts Ray, and not only prepares a node."""

    def shell(self) -> str:
        """As a shell takes it: without comments, with the lines joined that end in a backslash."""
        return re.sub(r"(^|[\s;])#[^\n]*", r"\1", re.sub(r"\\\n\s*", " ", self.text))


BOTH: frozenset[Role] = frozenset(("head", "worker"))


@dataclass
class Cluster:
    source: Source
    provider: str
    top: str
    """`file:line` for what is missing altogether."""
    head: Machine
    workers: list[Machine]
    told: list[Told] = field(default_factory=list)
    images: list[Told] = field(default_factory=list)
    mounts: dict[str, tuple[Path, str]] = field(default_factory=dict)
    """Path on a node: path here, and where that is said."""
    most: int | None = None
    """Workers of all kinds together."""

    def matches(self, pattern: str, role: Role | None = None, starts: bool = False) -> Iterator[tuple[re.Match, str]]:
        """Each match in what a role is told, with its `file:line`."""
        for told in self.told:
            if (role is None or role in told.roles) and (told.starts or not starts):
                for match in re.finditer(pattern, told.shell()):
                    yield match, self.source.line_of(match[0].split("\n")[0], told.where)

    def says(self, pattern: str, role: Role | None = None, starts: bool = False) -> bool:
        return next(self.matches(pattern, role, starts), None) is not None

    def start_of(self, role: Role) -> str:
        """Where a role's Ray is started."""
        found = [where for _, where in self.matches(r"ray start", role, starts=True)]
        return (
            found[0] if found else next((one.where for one in self.told if one.starts and role in one.roles), self.top)
        )

    def most_gpus(self) -> float:
        """With as many machines as there may be, those with the most GPUs first."""
        left, gpus = self.most if self.most is not None else sum(kind.most for kind in self.workers), 0.0
        for kind in sorted(self.workers, key=lambda kind: -(kind.gpu or 0)):
            count = min(kind.most, left)
            left, gpus = left - count, gpus + count * (kind.gpu or 0)
        return gpus

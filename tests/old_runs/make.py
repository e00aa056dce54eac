"""Makes the runs of this folder with the code as it is now: `python -m old_runs.make VERSION` in the folder tests, once
for every version.

Each run is a simulated sweep whose driver died half-way, as an archive, and beside it the table that it must end with.
"""

import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from disentune.runs.archive import pack
from simulation.world import Case, Fault, World, calm_of, simulated
from simulator import table

HERE = Path(__file__).parent
PAIRS = [("grid", "none"), ("grid", "asha"), ("optuna", "none"), ("random", "pbt")]


def main(version: str) -> None:
    socket.gethostname = lambda: "node"
    with tempfile.TemporaryDirectory() as folder:
        sweeps = Path(folder)
        for pair in PAIRS:
            calm = calm_of(pair, "", sweeps)
            case = Case(1, pair, "", (Fault("driver killed", calm.reports * 2 // 3),))
            world = World(case, sweeps, sweeps / f"half-{'-'.join(pair)}", slots=2)
            stop_after_one_session(world)
            assert table(world.run) != calm.table
            target = HERE / f"{version}-{'-'.join(pair)}.tar.zst"
            target.unlink(missing_ok=True)
            pack(world.run, target)
            target.with_name(target.name.replace(".tar.zst", ".json")).write_text(
                json.dumps(calm.table, indent=0) + "\n"
            )
            shutil.rmtree(world.run.path)


def stop_after_one_session(world: World) -> None:
    with simulated(world.disk, world.clock):
        assert not world._session()


if __name__ == "__main__":
    main(sys.argv[1])

"""A lab of three machines and a laptop on this one: network namespaces on a bridge, each host with its own processes,
files, home, hostname and a real sshd.

A host sees this machine's files through an overlay, so that it has the same programs and nothing that it writes stays.
`/shared` is the same folder on all hosts, as by NFS, and `/shared/small` a disk that is soon full. Power-off is a
SIGKILL of the host's first process: the kernel ends the rest of it.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import patience_s

NEEDED = ("ip", "unshare", "nsenter", "setpriv", "rsync", "ssh", "ssh-keygen", "sshd")
REASON = "needs root, and: apt-get install openssh-server rsync iproute2"
COMMAND_S, START_S = 180.0, 30.0
SMALL_KB = 192
HEAD, ONE, TWO, LAPTOP = "head", "one", "two", "laptop"
WORKERS = (ONE, TWO)
SERVERS = (HEAD, *WORKERS)
KEY = ".ssh/id_ed25519"
NOBODY = "02:00:00:00:00:01"
"""The address of no network device."""
EMPTY = ("/tmp", "/run", "/dev/shm", "/var/tmp")
"""Folders that are empty whenever a host starts; its home outlasts that."""

BOOT = """
set -eu
base=$1 name=$2; shift 2
mount -t tmpfs -o size=2g tmpfs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
root=$base/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for empty in $EMPTY; do mount -t tmpfs -o mode=1777 tmpfs "$root$empty"; done
mkdir -p "$root/shared" "$root/run/sshd" "$root/run/old"
mount --rbind "$SHARED" "$root/shared"
mount --bind "$HOMES/$name" "$root/root"
for path in "$@"; do
  layer=$(mktemp -d "$base/XXXXXX")
  mkdir -p "$root$path" "$layer/upper" "$layer/work"
  mount -t overlay overlay -o "lowerdir=$path,upperdir=$layer/upper,workdir=$layer/work" "$root$path"
done
cd "$root"
pivot_root . run/old
umount -l /run/old
hostname "$name"
echo mounted
read -r connected
if [ -e /root/sshd_config ]; then /usr/sbin/sshd -f /root/sshd_config; fi
echo ready
while :; do sleep 1000 & wait; done
"""

SSHD = """
ListenAddress {address}
HostKey /root/.ssh/host_key
PidFile /run/sshd.pid
AuthorizedKeysFile /root/.ssh/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
Subsystem sftp internal-sftp
"""

PROFILE = """
export PATH={path} OMP_NUM_THREADS=1 COLUMNS=200 RAY_USAGE_STATS_ENABLED=0
"""


def missing() -> str:
    """Why there can be no hosts here; empty when there can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if os.geteuid() != 0 or absent:
        return f"{REASON} (not here: {', '.join(['root'] * (os.geteuid() != 0) + absent)})"
    return ""


def _do(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=patience_s(START_S))
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}"
    return done.stdout


def _covered(path: Path) -> bool:
    """Whether a host sees nothing of a folder of this machine unless it is mounted there."""
    return path.stat().st_dev != Path("/").stat().st_dev or any(path.is_relative_to(own) for own in (*EMPTY, "/root"))


class Hosts:
    """Up when made; `close` leaves nothing behind. If this process is killed, files and a bridge stay, no process."""

    def __init__(self) -> None:
        self.bridge = f"dt{secrets.token_hex(4)}"
        self.network = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
        self.folder = Path(tempfile.mkdtemp(prefix="dt-hosts-"))
        self.shared = self.folder / "shared"
        self.started: dict[str, subprocess.Popen[str]] = {}
        self.commands: list[subprocess.Popen[str]] = []
        try:
            self._share()
            self._connect()
            self._keys()
            for name in (*SERVERS, LAPTOP):
                self.start(name)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Hosts":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address(self, name: str) -> str:
        return f"{self.network}.{10 + [*SERVERS, LAPTOP].index(name)}"

    @property
    def here(self) -> str:
        """This process's own address among the hosts."""
        return f"{self.network}.1"

    def _share(self) -> None:
        small = self.shared / "small"
        small.mkdir(parents=True)
        _do("mount", "-t", "tmpfs", "-o", f"size={SMALL_KB}k", "tmpfs", small)

    def _connect(self) -> None:
        _do("ip", "link", "add", self.bridge, "type", "bridge")
        _do("ip", "address", "add", f"{self.here}/24", "dev", self.bridge)
        _do("ip", "link", "set", self.bridge, "up")

    def _keys(self) -> None:
        """Each host's home: the laptop has the key, the servers let it in."""
        key = self._home(LAPTOP) / KEY
        _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        for name in SERVERS:
            ssh = self._home(name) / ".ssh"
            _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "host_key")
            shutil.copy(f"{key}.pub", ssh / "authorized_keys")
            (ssh.parent / "sshd_config").write_text(SSHD.format(address=self.address(name)))

    def _home(self, name: str) -> Path:
        home = self.folder / "homes" / name
        (home / ".ssh").mkdir(parents=True)
        path = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        (home / ".bashrc").write_text(PROFILE.format(path=path))
        (home / ".profile").write_text(". ~/.bashrc\n")
        return home

    def start(self, name: str) -> None:
        """Switches a host on; of what it wrote before, its home is still there."""
        base = self.folder / name
        base.mkdir(exist_ok=True)
        repository, prefix, python = Path(__file__).parents[1], Path(sys.prefix), Path(sys.base_prefix)
        bound = [str(path) for path in (repository, prefix, python) if _covered(path.resolve())]
        with open(self.folder / f"{name}.log", "a") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--pid", "--mount", "--uts", "--ipc", "--fork",
                 "--kill-child", "bash", "-c", BOOT, "boot", str(base), name, *bound],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "EMPTY": " ".join(EMPTY), "SHARED": str(self.shared),
                     "HOMES": str(self.folder / "homes")},
            )  # fmt: skip
        self.started[name] = process
        self._expect(name, "mounted")
        self._plug_in(name)
        assert process.stdin
        process.stdin.write("connected\n")
        process.stdin.flush()
        self._expect(name, "ready")

    def _expect(self, name: str, word: str) -> None:
        stdout = self.started[name].stdout
        assert stdout
        line = stdout.readline().strip()
        assert line == word, f"host {name} did not start: {(self.folder / f'{name}.log').read_text()}"

    def _cable(self, name: str) -> str:
        return f"{self.bridge}-{[*SERVERS, LAPTOP].index(name)}"

    def _plug_in(self, name: str) -> None:
        first, cable = self._first(name), self._cable(name)
        _do("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", first)
        _do("ip", "link", "set", cable, "master", self.bridge, "up")
        inside = ("nsenter", "--target", first, "--net", "ip")
        _do(*inside, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _do(*inside, "link", "set", device, "up")
        _do(*inside, "route", "add", "default", "via", self.here)  # by it Ray finds a host's own address

    def _first(self, name: str) -> int:
        """The host's first process, as seen from here."""
        pid = self.started[name].pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def popen(self, name: str, command: str) -> subprocess.Popen[str]:
        """A command in a login shell of a host."""
        inside = ["nsenter", "--target", str(self._first(name)), "--all", "--wdns=/root"]
        process = subprocess.Popen(
            [*inside, "env", "-i", "HOME=/root", "USER=root", "TERM=dumb", "bash", "--login", "-c", command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.commands.append(process)
        return process

    def run(self, name: str, command: str, timeout_s: float = COMMAND_S) -> tuple[int, str]:
        """The exit code and what was printed."""
        process = self.popen(name, command)
        output, _ = process.communicate(timeout=patience_s(timeout_s))
        self.commands.remove(process)
        return process.returncode, output

    def must(self, name: str, command: str, timeout_s: float = COMMAND_S) -> str:
        """What a command that has to succeed printed."""
        code, output = self.run(name, command, timeout_s)
        assert code == 0, f"{name}: {command}: exit code {code}\n{output}"
        return output

    def processes(self, name: str) -> list[str]:
        """What runs on a host beside its own first processes and sshd."""
        names = self.must(name, "ps -eo comm=").split("\n")
        return [process for process in names if process and process not in ("bash", "sshd", "sleep", "ps")]

    def kill(self, name: str) -> None:
        """The host's power fails."""
        process = self.started.pop(name)
        process.kill()
        process.communicate(timeout=patience_s(START_S))
        with contextlib.suppress(AssertionError):  # gone with the host, unless connections in their last throes keep it
            _do("ip", "link", "delete", self._cable(name))

    def cut(self, name: str) -> None:
        """The host's cable is pulled out: it goes on by itself, and nobody is told."""
        _do("ip", "link", "set", self._cable(name), "down")

    def mend(self, name: str) -> None:
        _do("ip", "link", "set", self._cable(name), "up")

    def mute(self, name: str, to: str) -> None:
        """What a host sends to another one is lost, and what that one sends still arrives: its packets have the
        address of no device."""
        self._neighbour(name, "replace", to, "lladdr", NOBODY, "nud", "permanent")

    def unmute(self, name: str, to: str) -> None:
        self._neighbour(name, "delete", to)

    def _neighbour(self, name: str, what: str, of: str, *how: str) -> None:
        inside = ("nsenter", "--target", self._first(name), "--net", "ip")
        _do(*inside, "neighbour", what, self.address(of), "dev", "eth0", *how)

    def suspend(self, name: str) -> None:
        """Stops every process of a host, as when a virtual machine is paused."""
        self.must(name, "kill -STOP -1")

    def continue_(self, name: str) -> None:
        self.must(name, "kill -CONT -1")

    def make_room(self) -> None:
        """The small disk is no longer small."""
        _do("mount", "-o", "remount,size=256m", self.shared / "small")

    def close(self) -> None:
        for name in list(self.started):
            self.kill(name)
        for command in self.commands:
            command.communicate(timeout=patience_s(START_S))
        for undo in (("umount", self.shared / "small"), ("ip", "link", "delete", self.bridge)):
            with contextlib.suppress(AssertionError):  # `left` says so
                _do(*undo)
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self) -> list[str]:
        """What is still here of the hosts: processes, mounts, network devices, files. Empty after `close`."""
        deadline = time.monotonic() + patience_s(START_S)
        while (found := self._found()) and time.monotonic() < deadline:
            time.sleep(0.1)  # the kernel ends a namespace a moment after its first process
        return found

    def _found(self) -> list[str]:
        mark = str(self.folder)
        processes = [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in _command_line(pid)]
        mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if mark in line]
        devices = [line for line in _do("ip", "-o", "link").splitlines() if self.bridge in line]
        return [*processes, *mounts, *devices, *([mark] if self.folder.exists() else [])]


def _command_line(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""

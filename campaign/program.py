"""Runs the program under test and measures it."""

from __future__ import annotations

import functools
import json
import os
import resource
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Seconds after which a run is killed and reported, and seconds of processor time.
KILL, KILL_CPU = 60.0, 30.0
# Bytes of address space for runs on damaged files.
ADDRESS_SPACE = 8 << 30


class OutOfTime(Exception):
    """The campaign's time is over; the case is dropped, neither passed nor failed."""


@dataclass
class Ran:
    """One finished run. A negative code is the number of the signal that ended it."""

    command: list[str]
    code: int
    out: str
    err: str
    wall: float
    cpu: float
    killed: bool = False

    def shell(self) -> str:
        """The command for a shell."""
        return shlex.join(self.command)

    def report(self) -> dict[str, Any]:
        """The JSON object on stdout; empty if there is none."""
        try:
            value = json.loads(self.out)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


@dataclass
class Program:
    """The program, its working folder, and the end of the campaign."""

    path: Path
    folder: Path
    deadline: float = float("inf")
    verbose: bool = False
    history: list[Ran] = field(default_factory=list)

    def run(self, *arguments: str, kill: float = KILL, limited: bool = False, interrupt: float | None = None) -> Ran:
        """Runs to the end, or until `kill` seconds have passed, longer if processors are shared. `interrupt`: seconds until SIGINT."""
        command = [str(self.path), *arguments]
        kill *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        if self.verbose:
            print("$", shlex.join(command), flush=True)
        begun, used = time.monotonic(), self._child_seconds()
        # A running case gets some time beyond the end of the campaign.
        left = self.deadline + 5.0 - begun
        if left <= 0:
            raise OutOfTime
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env={**os.environ, "NO_COLOR": "1", "RUST_BACKTRACE": "0"},
            preexec_fn=limit_memory if limited else None,
        )
        killed = False
        try:
            out, err = self._wait(process, min(kill, left), interrupt)
        except subprocess.TimeoutExpired:
            process.kill()
            killed = True
            out, err = process.communicate()
        except BaseException:
            process.kill()
            process.wait()
            raise
        if killed and time.monotonic() - begun >= left and self._child_seconds() - used < KILL_CPU:
            raise OutOfTime
        text = (out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        ran = Ran(command, process.returncode, *text, time.monotonic() - begun, self._child_seconds() - used, killed)
        self.history.append(ran)
        if self.verbose:
            note = ran.err.strip().splitlines()
            print(f"  exit {ran.code}, {ran.wall:.2f} s", note[0] if note else "", flush=True)
        return ran

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], seconds: float, interrupt: float | None) -> tuple[bytes, bytes]:
        """Output of the process after it has ended; raises after `seconds`, or too much processor time."""
        begun = time.monotonic()
        while True:
            passed = time.monotonic() - begun
            pause = min(2.0, seconds - passed, max(0.0, interrupt - passed) if interrupt is not None else 2.0)
            try:
                return process.communicate(timeout=max(0.0, pause))
            except subprocess.TimeoutExpired:
                passed = time.monotonic() - begun
                if interrupt is not None and passed >= interrupt:
                    # On a busy computer the program may not have come to its handler yet, and nobody could tell.
                    if not handles_interrupts(process.pid):
                        interrupt = passed + 0.05
                        continue
                    process.send_signal(signal.SIGINT)
                    interrupt = None
                elif passed >= seconds or processor_seconds(process.pid) >= KILL_CPU * machine_factor():
                    raise

    @staticmethod
    def _child_seconds() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime


def handles_interrupts(pid: int) -> bool:
    """Whether a process has a handler for SIGINT; true where that cannot be seen."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), None)
    return caught is None or bool(int(caught, 16) >> (signal.SIGINT - 1) & 1)


def processor_seconds(pid: int) -> float:
    """Processor time of a running process; 0 if the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


@functools.cache
def machine_factor() -> float:
    """How much slower than a typical core this one is, at least 1; from processor time, so that other load does not count."""
    begun = time.process_time()
    total = 0
    for i in range(1_000_000):
        total += i & 3
    return max(1.0, (time.process_time() - begun) / 0.1)

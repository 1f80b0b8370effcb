"""Progress of a fit on the terminal, in a notebook or in a log, from the steps that the solver reports."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

#: Fits shorter than this many seconds show nothing on a terminal.
PATIENCE = 0.5

#: Seconds until the second line of a log; the wait then doubles up to `LONGEST_WAIT`.
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0


def describe(name: str, step: Mapping[str, Any]) -> str:
    """One line that describes a step."""
    parts = [name, step["phase"]]
    if step["iteration"]:
        parts.append(f"step {step['iteration']:,}")
    if "active" in step:
        parts.append(f"{step['active']:,} active")
    if "fraction" in step:
        done = int(20 * step["fraction"])
        parts.append("█" * done + "░" * (20 - done) + f" {100 * step['fraction']:.0f} %")
    elif "violation" in step:
        parts.append(f"violation {step['violation']:.1e}")
    parts.append(f"{step['seconds']:.1f} s")
    return " · ".join(parts)


class Bar:
    """Progress of one fit: a line that overwrites itself, or lines of a log.

    Parameters
    ----------
    name : str
        What is fitted.
    stream : file, default=None
        Where to write; standard error by default. On a terminal a line overwrites itself and disappears at the end. In
        a notebook the line is an output of the cell. Anywhere else lines are written after 0.5, 1, 2, 4, … seconds, and
        one at the end.

    Examples
    --------
    >>> import sys
    >>> from margrave.progress import Bar
    >>> bar = Bar("SVC", stream=sys.stdout)
    >>> bar({"phase": "pairs", "iteration": 12, "seconds": 0.1, "violation": 0.02})
    >>> bar.close()
    SVC · pairs · step 12 · violation 2.0e-02 · 0.1 s
    """

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self.name = name
        self.stream = stream or sys.stderr
        self.begun = time.monotonic()
        self.width = 0
        self.handle: Any = None
        self.last: str | None = None
        self.step: Mapping[str, Any] = {}
        self.next_line = PATIENCE
        self.wait = FIRST_WAIT

    def __call__(self, step: Mapping[str, Any]) -> None:
        self.step = step
        self.last = describe(self.name, step)
        elapsed = time.monotonic() - self.begun
        if _notebook() is not None or self.stream.isatty():
            if elapsed >= PATIENCE:
                self.show(self.last)
        elif elapsed >= self.next_line:
            self._write_line()
            self.next_line = elapsed + self.wait
            self.wait = min(2 * self.wait, LONGEST_WAIT)

    def show(self, line: str) -> None:
        """Replace the line on the terminal or in the notebook."""
        display = _notebook()
        if display is not None:
            if self.handle is None:
                self.handle = display({"text/plain": line}, raw=True, display_id=True)
            else:
                self.handle.update({"text/plain": line}, raw=True)
        elif self.stream.isatty():
            self.stream.write("\r" + line.ljust(self.width))
            self.stream.flush()
            self.width = max(self.width, len(line))

    def _write_line(self) -> None:
        if self.last is not None:
            self.stream.write(self.last + "\n")
            self.stream.flush()
            self.last = None

    def close(self) -> None:
        """End of the fit."""
        if self.last is not None and (self.step.get("phase") == "certify" or self.step.get("fraction") == 1.0):
            # The certificate, or the last part of a search, is the last that is computed: nothing reports its end.
            self.last = describe(self.name, {**self.step, "phase": "done"})
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0
        elif self.last is not None and _notebook() is not None:
            self.show(self.last)
            self.last = None
        elif not self.stream.isatty():
            self._write_line()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # The stream may already be closed when the interpreter exits.
            pass


def _notebook() -> Callable[..., Any] | None:
    """IPython's `display` inside a notebook, None elsewhere."""
    module = sys.modules.get("IPython")
    shell = module and module.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


def reporter(name: str) -> Bar:
    """A callback for `_core` that shows the steps of a fit."""
    return Bar(name)


__all__ = ["Bar", "describe", "reporter"]

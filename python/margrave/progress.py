"""Progress of a fit on the terminal or in a notebook, from the steps that the solver reports."""

import sys
import time

#: Fits shorter than this many seconds show nothing.
PATIENCE = 0.5


def describe(name, step):
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
    """A progress line that overwrites itself."""

    def __init__(self, name, stream=None):
        self.name = name
        self.stream = stream or sys.stderr
        self.begun = time.monotonic()
        self.width = 0
        self.handle = None

    def __call__(self, step):
        if time.monotonic() - self.begun < PATIENCE:
            return
        self.show(describe(self.name, step))

    def show(self, line):
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

    def close(self):
        if self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()
            self.width = 0

    def __del__(self):
        try:
            self.close()
        except Exception:  # The stream may already be closed when the interpreter exits.
            pass


def _notebook():
    """IPython's `display` inside a notebook, None elsewhere."""
    shell = sys.modules.get("IPython")
    shell = shell and shell.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


def reporter(name):
    """A callback for `_core` that shows the steps of a fit."""
    return Bar(name)


__all__ = ["Bar", "describe", "reporter"]

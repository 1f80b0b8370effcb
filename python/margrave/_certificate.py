"""The certificate of a fit."""

import html
from typing import Any


def _together(parts: list[Any]) -> dict[str, Any]:
    """The parts of the gaps of several binary models on few centres: sums, and the worst relative gap and check."""
    checks = {one["check"] for one in parts}
    known = "own" not in checks
    return {
        "centres": max(one["centres"] for one in parts),
        "own_gap": sum(one["own_gap"] for one in parts),
        "own_relative_gap": max(one["own_relative_gap"] for one in parts),
        "kernel_gap": sum(one["kernel_gap"] for one in parts) if known else None,
        "check": next(check for check in ("own", "sampled", "exact", "auto") if check in checks),
        "rows_drawn": sum(one["rows_drawn"] for one in parts),
    }


class Certificate:
    """How far a fitted model can be from the optimum.

    For a convex loss the optimal value lies between `dual` and `primal`. `gap` is their difference, which includes
    `rounding`, a bound on rounding errors; `relative_gap` is gap / max(|primal|, |dual|). `violation` is the largest
    violation of the optimality conditions, in units of the decision function. `worst` lists (row, share of the gap) of
    the samples that violate their conditions most. For a non-convex loss there is no bound: `objective`, `stationarity`
    and `start_objective` (the objective of the convex start) describe the result.

    `status` is "optimal" (the certificate meets the requested accuracy), "inaccurate" (the solver ended, but the
    certificate does not confirm the accuracy), "time_limit", "iteration_limit", "stalled" or "interrupted"; `None` for
    a model that was only certified, not trained. `known` is false if nothing was checked. `kernel_is_psd` is `None` if
    the kernel is not known to be positive semi-definite: the gap is a proof only if the kernel matrix is. For several
    binary models `primal`, `dual`, `gap` and `rounding` are sums, and `relative_gap`, `violation` and `status` are
    those of the worst; `machines` lists the certificate of each.

    For a model on few centres (`approx=`) the bounds are those of the exact problem, and `approximation` has their parts:
    `own_gap` of the problem on the centres, `kernel_gap` for what they leave out, and how that was bounded (`check`:
    "exact", "sampled" with probability 1 - 1e-9, or "own": not at all, and the bounds and the status are those of the
    problem on the centres only, which `summary()` says).
    """

    FIELDS = ("primal", "dual", "gap", "rounding", "relative_gap", "violation", "status", "worst")
    _SEVERITY = (None, "optimal", "inaccurate", "stalled", "iteration_limit", "time_limit", "interrupted")

    def __init__(self, **values: Any) -> None:
        self.primal: Any = values.get("primal")
        self.dual: Any = values.get("dual")
        self.gap: Any = values.get("gap")
        self.rounding: Any = values.get("rounding")
        self.relative_gap: Any = values.get("relative_gap")
        self.violation: Any = values.get("violation")
        self.status: str | None = values.get("status")
        self.worst = values.get("worst", [])
        self.objective: Any = values.get("objective", self.primal)
        self.stationarity: Any = values.get("stationarity")
        self.start_objective = values.get("start_objective")
        self.feasible = values.get("feasible", True)
        self.known = not values.get("unknown", False)
        self.kernel_is_psd = values.get("kernel_is_psd")
        self.machines = values.get("machines", [])
        self.approximation: dict[str, Any] | None = values.get("approximation")

    @classmethod
    def of_machines(cls, machines: Any, totals: Any = None) -> Any:
        """From the dictionaries of `_core`, one per binary model."""
        each = [cls(**machine) for machine in machines]
        if len(each) == 1:
            return each[0]
        convex = all(one.gap is not None for one in each)
        values: dict[str, Any] = {"machines": each}
        if convex:
            primal, dual = sum(one.primal for one in each), sum(one.dual for one in each)
            gap = sum(one.gap for one in each)
            values.update(primal=primal, dual=dual, gap=gap, violation=max(one.violation for one in each))
            values["rounding"] = sum(one.rounding or 0.0 for one in each)
            values["relative_gap"] = max(one.relative_gap for one in each)
            values["kernel_is_psd"] = True if all(one.kernel_is_psd for one in each) else None
            shares: dict[int, float] = {}
            for one in each:
                for row, share in one.worst:
                    shares[row] = shares.get(row, 0.0) + (share * one.gap / gap if gap > 0 else 0.0)
            values["worst"] = sorted(shares.items(), key=lambda item: -item[1])[:10]
        elif not all(one.known for one in each):
            values["unknown"] = True
        else:
            values["objective"] = sum(one.objective for one in each)
            values["stationarity"] = max(one.stationarity or one.violation or 0.0 for one in each)
        if all(one.approximation is not None for one in each):
            values["approximation"] = _together([one.approximation for one in each])
        values["status"] = max((one.status for one in each), key=cls._SEVERITY.index)
        values["feasible"] = all(one.feasible for one in each)
        return cls(**values)

    @property
    def convex(self) -> bool:
        """Whether there is a bound on the distance to the optimum."""
        return self.gap is not None

    def summary(self) -> str:
        """The certificate in one line."""
        if not self.known:
            return "The model was not checked."
        if not self.convex:
            return f"Objective {self.objective:.6g}, stationarity {self.stationarity:.1e} (the loss is not convex)."
        parts = self.approximation
        if parts is not None and parts["check"] == "own":
            return (
                f"Only the problem on {parts['centres']} centres was certified, not the exact one: its objective is"
                f" {self.primal:.6g}, its optimum at least {self.dual:.6g}, relative gap {self.relative_gap:.1e}."
            )
        if parts is not None:
            size = max(abs(self.primal), abs(self.dual)) or 1.0
            chance = " with probability 1 - 1e-9" if parts["check"] == "sampled" else ""
            return (
                f"On {parts['centres']} centres the objective is {self.primal:.6g}, the exact optimum at least"
                f" {self.dual:.6g}{chance}: relative gap {self.relative_gap:.1e} (own {parts['own_gap'] / size:.1e},"
                f" kernel {parts['kernel_gap'] / size:.1e})."
            )
        return (
            f"The objective is {self.primal:.6g}, the optimum at least {self.dual:.6g}:"
            f" relative gap {self.relative_gap:.1e}, violation {self.violation:.1e}."
        )

    def as_dict(self) -> dict[str, Any]:
        """The numbers as a dictionary."""
        if self.convex:
            return {name: getattr(self, name) for name in self.FIELDS}
        return {name: getattr(self, name) for name in ("objective", "stationarity", "start_objective", "status")}

    def __getitem__(self, name: Any) -> Any:
        return self.as_dict()[name]

    def keys(self) -> Any:
        """Names of the numbers."""
        return self.as_dict().keys()

    def _repr_html_(self) -> str:
        """The certificate as a table, for notebooks."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name.replace('_', ' '))}</th>"
            f"<td>{html.escape(f'{value:.6g}' if isinstance(value, float) else str(value))}</td></tr>"
            for name, value in self.as_dict().items()
            if name != "worst" and value is not None
        )
        return f"<table><caption>{html.escape(self.summary())}</caption><tbody>{rows}</tbody></table>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in self.as_dict().items()
            if name != "worst" and value is not None
        )
        return f"Certificate({shown})"


__all__ = ["Certificate"]

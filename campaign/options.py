"""Random options of a training, and their meaning for a naive evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .data import Array, Rng, Table

CLASSIFY = ["hinge", "hinge", "hinge", "smooth-hinge", "squared-hinge", "power", "square", "logistic", "huber-hinge"]
LEVEL = ["ramp", "sigmoid", "polynomial"]
REGRESS = ["epsilon", "epsilon", "squared-epsilon", "square", "huber", "absolute", "pinball", "expectile", "logcosh"]
KERNELS = ["linear", "linear", "linear", "rbf", "rbf", "rbf", "poly", "laplacian", "matern32", "matern52", "chi2", "sigmoid"]
# Losses whose dual is box-quadratic, and those whose dual is a plain box.
QUADRATIC = {
    "hinge",
    "smooth-hinge",
    "squared-hinge",
    "huber-hinge",
    "square",
    "epsilon",
    "squared-epsilon",
    "huber",
    "absolute",
    "pinball",
}
BOX = {"hinge", "epsilon", "absolute", "pinball"}


@dataclass
class Options:
    """The options of one training. `None` and defaults are left out of the command."""

    task: str
    kernel: str = "rbf"
    loss: str | None = None
    parameters: str = ""
    gamma: str | None = None
    degree: int | None = None
    coef0: float | None = None
    cost: float | None = None
    lam: float | None = None
    epsilon: float | None = None
    nu: float | None = None
    svdd: bool = False
    no_bias: bool = False
    intercept: float | None = None
    l1: bool = False
    class_weight: str | None = None
    scale: str | None = None
    multiclass: str | None = None
    probability: str | None = None
    solver: str | None = None
    tol: float | None = None
    gap: float | None = None
    seconds: float | None = None
    iterations: int | None = None
    memory: str | None = None
    compact: float | None = None
    anneal: int | None = None

    def arguments(self) -> list[str]:
        """As arguments of the command line."""
        flags = ["--task", self.task, "-k", self.kernel]
        pairs: list[tuple[str, object]] = [
            ("--gamma", self.gamma),
            ("--degree", self.degree),
            ("--coef0", self.coef0),
            ("-C", self.cost),
            ("--lambda", self.lam),
            ("--epsilon", self.epsilon),
            ("--nu", self.nu),
            ("--intercept-scaling", self.intercept),
            ("--class-weight", self.class_weight),
            ("--scale", self.scale),
            ("--multiclass", self.multiclass),
            ("--solver", self.solver),
            ("--tol", self.tol),
            ("--gap", self.gap),
            ("--max-seconds", self.seconds),
            ("--max-iter", self.iterations),
            ("--memory", self.memory),
            ("--compact", self.compact),
            ("--anneal", self.anneal),
        ]
        if self.loss is not None:
            flags += ["-l", self.loss + self.parameters]
        for name, value in pairs:
            if value is not None:
                flags += [name, repr(value) if isinstance(value, float) else str(value)]
        flags += ["--svdd"] if self.svdd else []
        flags += ["--no-bias"] if self.no_bias else []
        flags += ["--penalty", "l1"] if self.l1 else []
        flags += [self.probability] if self.probability else []
        return flags

    @property
    def level(self) -> bool:
        """Whether the loss is not convex."""
        return self.loss in LEVEL

    @property
    def definite(self) -> bool:
        """Whether the kernel is positive semi-definite, so that the problem has a single optimal value."""
        shifted = self.kernel == "poly" and (self.coef0 or 0.0) < 0
        return self.kernel != "sigmoid" and not shifted

    def other(self, **changes: object) -> Options:
        """The same with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]


def power(rng: Rng, low: float, high: float) -> float:
    """A number whose logarithm is uniform, rounded to four digits."""
    return float(f"{10.0 ** rng.uniform(low, high):.4g}")


def draw_loss(rng: Rng, task: str) -> tuple[str | None, str]:
    """A loss and its parameters."""
    if rng.random() < 0.12:
        return None, ""
    if task == "regress":
        loss = str(rng.choice(REGRESS))
    elif rng.random() < 0.15:
        loss = str(rng.choice(LEVEL))
    else:
        loss = str(rng.choice(CLASSIFY))
    if rng.random() < 0.4:
        return loss, ""
    drawn = {
        "smooth-hinge": f":K={power(rng, -1, 6)!r}",
        "power": f":s={rng.choice([1.0, 1.2, 1.5, 2.0, 3.0])!r}".replace("np.float64(", "").replace(")", ""),
        "huber-hinge": f":delta={power(rng, -2, 2)!r}",
        "ramp": f":limit={power(rng, -1, 1)!r}",
        "sigmoid": f":eta={power(rng, -0.5, 1)!r}",
        "polynomial": f":s={int(rng.integers(1, 5))},kappa={power(rng, -3, 0)!r}",
        "epsilon": f":epsilon={power(rng, -4, 1)!r}",
        "squared-epsilon": f":epsilon={power(rng, -4, 1)!r}",
        "huber": f":delta={power(rng, -3, 2)!r}",
        "pinball": f":tau={round(float(rng.uniform(0.02, 0.98)), 3)!r}",
        "expectile": f":tau={round(float(rng.uniform(0.02, 0.98)), 3)!r}",
    }
    return loss, drawn.get(loss, "")


def draw_kernel(rng: Rng, options: Options) -> None:
    options.kernel = str(rng.choice(KERNELS))
    if options.kernel == "linear":
        return
    kind = rng.random()
    if kind < 0.3:
        options.gamma = str(rng.choice(["scale", "auto", "median"]))
    elif kind < 0.7:
        options.gamma = repr(power(rng, -4, 2))
    if options.kernel == "poly":
        options.degree = int(rng.choice([1, 2, 2, 3, 4, 6]))
    if options.kernel in ("poly", "sigmoid") and rng.random() < 0.6:
        options.coef0 = float(rng.choice([-1.0, 0.0, 1.0, 10.0]))


def solvers(options: Options) -> list[str]:
    """Solvers that should support this problem."""
    loss = options.loss or ("epsilon" if options.task == "regress" else "hinge")
    plain = options.nu is None and options.task != "novelty"
    if options.intercept is not None or options.l1 or options.multiclass == "crammer-singer":
        return ["linear"]
    if options.level:
        return ["irwls"]
    known = ["decomposition"] if loss in QUADRATIC or not plain else []
    if plain:
        known += ["irwls"]
        known += ["ridge"] if loss == "square" else []
        known += ["linear"] if options.kernel == "linear" and options.compact is None else []
        if not options.no_bias:
            known += ["smo"] if loss == "hinge" else []
            known += ["svmtorch"] if loss in BOX else []
    return known


def draw_stop(rng: Rng, options: Options) -> None:
    """Required accuracy, and limits."""
    kind = rng.random()
    if kind < 0.35:
        options.gap = power(rng, -10, -1) if rng.random() < 0.5 else float(rng.choice([1e-2, 1e-3, 1e-4, 1e-6]))
    elif kind < 0.6:
        options.tol = power(rng, -10, -1) if rng.random() < 0.5 else float(rng.choice([1e-2, 1e-3, 1e-4, 1e-6]))
    elif kind < 0.7:
        options.gap, options.tol = power(rng, -8, -1), power(rng, -8, -1)
    if rng.random() < 0.05:
        options.iterations = int(rng.choice([0, 1, 2, 10, 100]))
    if rng.random() < 0.03:
        options.seconds = float(rng.choice([0.0, 0.01, 0.1]))
    if rng.random() < 0.05:
        options.memory = str(rng.choice(["1KB", "64KB", "1MB"]))


def draw(rng: Rng, table: Table, task: str) -> Options:
    """Random options for the table; the program accepts most of them, not all."""
    options = Options(task)
    classes = 0 if task != "classify" or table.target is None else len(set(table.target))
    several = table.target is not None and table.target.ndim > 1
    draw_kernel(rng, options)
    draw_stop(rng, options)
    if rng.random() < 0.85:
        wide = rng.random() < 0.3
        options.cost = power(rng, -6, 6) if wide else power(rng, -3, 3)
    elif rng.random() < 0.3:
        options.lam = power(rng, -6, 3)
    if task == "novelty":
        options.svdd = bool(rng.random() < 0.4)
        options.nu = round(float(rng.uniform(0.01, 1.0)), 3) if rng.random() < 0.8 else None
    elif several:
        options.loss = "square"
    elif rng.random() < 0.1:
        options.nu = round(float(rng.uniform(0.01, 0.8)), 3)
    else:
        options.loss, options.parameters = draw_loss(rng, task)
        if options.loss in (None, "epsilon") and task == "regress" and not options.parameters and rng.random() < 0.5:
            options.epsilon = power(rng, -4, 1)
        options.no_bias = bool(rng.random() < 0.12)
        if options.kernel == "linear" and not options.no_bias and rng.random() < 0.15:
            options.intercept = float(rng.choice([0.1, 1.0, 1.0, 10.0]))
        if options.kernel == "linear" and options.loss in ("squared-hinge", "logistic", "square", "huber-hinge", "huber"):
            options.l1 = bool(rng.random() < 0.2)
    if task == "classify":
        draw_classes(rng, options, table, classes)
    if rng.random() < 0.35:
        options.scale = str(rng.choice(["minmax", "standard"]))
    draw_rest(rng, options, table)
    return options


def draw_classes(rng: Rng, options: Options, table: Table, classes: int) -> None:
    if rng.random() < 0.15:
        options.class_weight = "balanced"
        if rng.random() < 0.5 and table.target is not None:
            label = sorted(set(table.target))[0]
            name = label if isinstance(label, str) else repr(int(label))
            options.class_weight = f"{name}={power(rng, -2, 2)!r}"
    if classes > 2 and rng.random() < 0.7:
        options.multiclass = str(rng.choice(["ovo", "ovr"]))
    if options.kernel == "linear" and options.loss in (None, "hinge") and options.nu is None and not options.l1 and rng.random() < 0.15:
        options.multiclass = "crammer-singer"


def draw_rest(rng: Rng, options: Options, table: Table) -> None:
    known = solvers(options)
    if rng.random() < 0.35 and known:
        options.solver = known[int(rng.integers(len(known)))]
    elif rng.random() < 0.04:
        options.solver = str(rng.choice(["decomposition", "irwls", "ridge", "linear", "smo", "svmtorch"]))
    if options.task != "novelty" and rng.random() < 0.06:
        options.probability = str(rng.choice(["--probability", "--probability=3"]))
    if rng.random() < 0.05:
        options.compact = power(rng, -8, -1)
    if options.level and rng.random() < 0.3:
        options.anneal = int(rng.integers(1, 4))
    if options.kernel == "chi2" and (table.encoded() < 0).any():
        options.scale = "minmax"


def costs(options: Options, table: Table, labels: list[object]) -> Array:
    """Weight of each row without C: sample weights times class factors."""
    weights = np.ones(table.n) if table.weights is None else table.weights.astype(float).copy()
    if options.class_weight is None or table.target is None:
        return weights
    codes = encode(table.target, labels)
    if options.class_weight == "balanced":
        counts = np.bincount(codes, minlength=len(labels))
        factors = table.n / (len(labels) * np.maximum(counts, 1))
    else:
        name, value = options.class_weight.rsplit("=", 1)
        factors = np.ones(len(labels))
        for at, label in enumerate(labels):
            if str(label) == name or (isinstance(label, float) and label == as_number(name)):
                factors[at] = float(value)
    return weights * factors[codes]


def as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def encode(target: Array, labels: list[object]) -> Array:
    """The index of each row's label in `labels`."""
    place = {label: at for at, label in enumerate(labels)}
    return np.array([place[value if isinstance(value, str) else float(value)] for value in target])

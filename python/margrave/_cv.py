"""Models that choose their parameters by cross-validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import _fit_context
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import validate_data

from . import _core
from ._card import not_here, on_card, to_host
from ._prepare import INPUT
from ._scoring import HeldOutClassifier, HeldOutRegressor, imbalance, resolve, takes_scores
from ._spec import points, resolve_gamma, without
from ._svm import SVC, SVR
from .losses import LossLike
from .progress import reporter

if TYPE_CHECKING:
    from typing_extensions import Self

#: LIBSVM's grid: powers of 4.
COSTS = tuple(float(2.0**k) for k in range(-5, 16, 2))
GAMMAS = tuple(float(2.0**k) for k in range(-15, 4, 2))
#: Standard deviations that `race=True` stands for.
RACE_DEVIATIONS = 4.0


class _Search:
    """Grid search that SVCCV and SVRCV add to SVC and SVR."""

    @property
    def gamma(self) -> Any:
        """The chosen γ."""
        return getattr(self, "gamma_", None) or "scale"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Search the grid by cross-validation, then fit the best combination on all samples.

        The kernel matrix of each γ is computed once for all folds and values of C, and each fit is warm-started from
        the next smaller C.
        """
        if callable(self.kernel):
            raise ValueError("kernel must be the name of a kernel or 'precomputed', not a function")
        if on_card(X):
            not_here(self)
        checked, targets = validate_data(self, X, to_host(y), **INPUT)
        weights = self._weights(checked, checked.shape[0], sample_weight)
        if self._task == "classify" and self.scoring is None and self.class_weight is None and weights is None:
            message = imbalance(targets)
            if message:
                warnings.warn(message, UserWarning, stacklevel=2)
        fold_of, count = self._folds(checked, targets, self.cv)
        self._search(checked, targets, weights, fold_of, count)
        return super().fit(X, y, sample_weight=sample_weight)

    def _folds(self, X: Any, y: Any, cv: Any) -> Any:
        """Fold of each sample and number of folds; every sample must be in the test set exactly once."""
        splitter = check_cv(cv, y, classifier=self._task == "classify")
        fold_of = np.full(X.shape[0], -1, dtype=np.int64)
        count = 0
        for _, test in splitter.split(X, y):
            if (fold_of[test] >= 0).any():
                raise ValueError("cv must test every sample exactly once: its folds overlap")
            fold_of[test] = count
            count += 1
        if (fold_of < 0).any():
            raise ValueError("cv must test every sample exactly once: some are in no fold")
        return fold_of, count

    def _search(self, X: Any, y: Any, weights: Any, fold_of: Any, count: Any) -> Any:
        """Score every combination of the grid and set the chosen parameters, `best_score_` and `cv_results_`."""
        X, y, weights, kept = self._drop_unweighted(X, y, weights)
        fold_of = fold_of if kept is None else fold_of[kept]
        native, scorer = resolve(self.scoring)
        direct = scorer is not None and takes_scores(scorer)
        codes, factors = self._encode(y, weights)
        self._kernel_name = self.kernel
        self._gamma = 0.0 if self.kernel == "precomputed" else resolve_gamma("scale", X, weights)
        spec = self._params(X.shape[0], X.shape[1], fitting=True)
        spec.update(probability=False, threshold=None)
        if factors is not None and (factors != 1).any():
            spec["class_weight"] = [float(factor) for factor in self.class_weight_]
        if self.kernel == "linear":
            # `_params` prefers the dual so that `dual_coef_` is exact; the search does not need that.
            spec["solver"] = self.solver
        gammas = [] if self.kernel == "linear" else [float(g) for g in self.gammas]
        epsilons = [float(e) for e in getattr(self, "epsilons", None) or []]
        if scorer is not None and not direct:
            # The score takes the model itself: it is fitted.
            cells = self._fitted_cells(scorer, X, y, weights, fold_of, count)
            return self._chosen(cells, self._best_of(cells, count), count)
        report = reporter(f"{type(self).__name__} search") if self.verbose else None
        arguments = (
            points(X),
            codes,
            weights,
            [float(c) for c in self.Cs],
            gammas,
            epsilons,
            count,
            np.ascontiguousarray(fold_of),
            weights,
            None if direct else self._deviations(),
        )
        result = self._tune(spec, arguments, report, score=native, keep_scores=direct)
        if report is not None:
            report.close()
        if result["interrupted"] is not None:
            raise result["interrupted"]
        if result["best"] is None:
            raise _core.BudgetError("max_seconds ended before one combination was scored: raise it")
        cells, best = result["cells"], result["best"]
        if direct:
            self._score_cells(scorer, cells, result["scores"], X, y, weights, fold_of)
            best = self._best_of(cells, count)
        return self._chosen(cells, best, count)

    def _tune(self, spec: Any, arguments: Any, report: Any, **options: Any) -> Any:
        """The search itself."""
        return _core.tune(spec, *arguments, report=report, **options)

    def _chosen(self, cells: Any, best: Any, count: int) -> Any:
        """Set the chosen parameters, `best_score_` and `cv_results_`."""
        epsilons = [float(e) for e in getattr(self, "epsilons", None) or []]
        best = cells[best]
        self.C_ = best["C"]
        self.gamma_ = best["gamma"]
        if epsilons:
            self.epsilon_ = best["epsilon"]
        # Folds that a combination did not reach, because the race dropped it or time ran out, have no score.
        scores = np.array([cell["folds"] + [np.nan] * (count - len(cell["folds"])) for cell in cells])
        self.best_params_ = self._named(best, bool(epsilons))
        self.best_score_ = float(np.mean(best["folds"]))
        self.cv_results_ = {
            "params": [self._named(cell, bool(epsilons)) for cell in cells],
            "mean_test_score": scores.mean(axis=1),
            "std_test_score": scores.std(axis=1),
            "fit_seconds": np.array([cell["seconds"] for cell in cells]),
            "dropped": np.array([cell["dropped"] for cell in cells], dtype=bool),
            **{f"split{at}_test_score": scores[:, at] for at in range(count)},
        }

    def _score_cells(self, scorer: Any, cells: Any, scores: Any, X: Any, y: Any, weights: Any, fold_of: Any) -> None:
        """Replace the scores of the folds by those of a scorer, from the scores of the test sets."""
        for cell, by_fold in zip(cells, scores, strict=True):
            values = []
            for fold, held in enumerate(by_fold):
                test = np.flatnonzero(fold_of == fold)
                if self._task == "classify":
                    model = HeldOutClassifier(held, self.classes_, self.decision_function_shape)
                else:
                    model = HeldOutRegressor(held)
                counted = {} if weights is None else {"sample_weight": weights[test]}
                values.append(float(scorer(model, X[test], y[test], **counted)))
            cell["folds"] = values

    def _fitted_cells(
        self, scorer: Any, X: Any, y: Any, weights: Any, fold_of: Any, count: int
    ) -> list[dict[str, Any]]:
        """Scores of all combinations by a function of a fitted model and its test set: one fit per fold each."""
        base = SVC if self._task == "classify" else SVR
        shared = {name: value for name, value in self.get_params(deep=False).items() if name in base().get_params()}
        if self._task == "classify":
            shared["probability"] = True
        gammas = [None] if self.kernel in ("linear", "precomputed") else [float(g) for g in self.gammas]
        epsilons: list[Any] = [float(e) for e in getattr(self, "epsilons", None) or []] or [None]
        cells, jobs = [], []
        for gamma in gammas:
            for epsilon in epsilons:
                for C in sorted(float(c) for c in self.Cs):
                    chosen = {"C": C, "gamma": gamma, "epsilon": epsilon}
                    given = {name: value for name, value in chosen.items() if value is not None}
                    cells.append({**chosen, "folds": [], "dropped": False, "seconds": 0.0})
                    jobs += [({**shared, **given}, fold) for fold in range(count)]
        found = self._fit_and_score(base, jobs, scorer, (X, y, weights, fold_of))
        for at, (score, seconds) in enumerate(found):
            cells[at // count]["folds"].append(score)
            cells[at // count]["seconds"] += seconds
        return cells

    def _fit_and_score(self, base: Any, jobs: Any, scorer: Any, data: Any) -> Any:
        """Score and seconds of each of the jobs, parameters with a fold."""
        return [fit_and_score(base, given, fold, scorer, data) for given, fold in jobs]

    def _best_of(self, cells: Any, count: int) -> int:
        """The best of the cells with all folds; ties go to the smallest C, then to the smallest γ."""
        whole = [at for at, cell in enumerate(cells) if len(cell["folds"]) == count]
        if not whole:
            raise _core.BudgetError("max_seconds ended before one combination was scored: raise it")
        means = {at: np.mean(cells[at]["folds"]) for at in whole}
        if all(np.isnan(mean) for mean in means.values()):
            raise ValueError("the score is NaN for every combination")
        return max(
            (at for at in whole if not np.isnan(means[at])),
            key=lambda at: (means[at], -cells[at]["C"], -(cells[at]["gamma"] or 0.0)),
        )

    def _deviations(self) -> Any:
        if isinstance(self.race, (bool, np.bool_)):
            return RACE_DEVIATIONS if self.race else None
        return float(self.race)

    def _named(self, cell: Any, tube: Any) -> Any:
        named = {"C": cell["C"]}
        if cell["gamma"] is not None and self.kernel != "linear":
            named["gamma"] = cell["gamma"]
        if tube:
            named["epsilon"] = cell["epsilon"]
        return named


def fit_and_score(base: Any, given: Any, fold: int, scorer: Any, data: Any) -> tuple[float, float]:
    """Score of a model fitted without a fold on that fold, and the seconds it took."""
    X, y, weights, fold_of = data
    start = time.perf_counter()
    test, train = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
    A, B = X[train], X[test]
    if given.get("kernel") == "precomputed":
        A, B = np.ascontiguousarray(A[:, train]), np.ascontiguousarray(B[:, train])
    model = base(**given)
    model.fit(A, y[train], sample_weight=None if weights is None else weights[train])
    return float(scorer(model, B, y[test])), time.perf_counter() - start


_GRID = {
    "Cs": ["array-like"],
    "gammas": ["array-like"],
    "cv": ["cv_object"],
    "race": ["boolean", Interval(Real, 0, None, closed="neither")],
    "scoring": [None, str, callable],
}


class SVCCV(_Search, SVC):
    """`SVC` that chooses C and γ by cross-validation and fits the best combination on all samples.

    Parameters
    ----------
    Cs, gammas : array-like, default=powers of 4, from 2^-5 to 2^15 and from 2^-15 to 2^3
        The grid. The linear kernel ignores `gammas`.
    cv : int, splitter or iterable, default=None
        5 folds by default. Every sample must be in the test set exactly once.
    race : bool or float, default=False
        False: every combination is scored on every fold, as in scikit-learn. True: in grids of four values of γ or
        more, a combination is dropped after a fold once its losses on the samples tested so far exceed those of the
        best by 4 standard deviations of the difference; a number replaces the 4. Several times faster. If samples are
        independent, the combination that would have won is lost with a probability of about 3e-5 per fold and
        competitor at 4, 1e-3 at 3. Scores that are not means over samples are compared by paired resamples of them;
        for log-loss, Brier score and scorers that are not the engine's own there is no race.
    scoring : str or callable, default=None
        What to choose by; accuracy by default. A name of scikit-learn ("balanced_accuracy", "f1_macro", "roc_auc",
        "average_precision", "neg_log_loss", "matthews_corrcoef", …) or of `margrave tune --score`, a scorer of
        `make_scorer`, or a function `(estimator, X, y)`. Samples count by their weights. The probabilities behind
        "neg_log_loss" and "neg_brier_score" are calibrated on the other folds. Scorers that need `predict_proba` and
        functions get a model that is fitted for them, which takes longer.
    **others : object
        The other parameters are those of `SVC`.

    Attributes
    ----------
    C_, gamma_ : float
        The chosen values.
    best_params_ : dict
        The same by name.
    best_score_ : float
        Mean score of the best combination over the folds.
    cv_results_ : dict
        scikit-learn's `params`, `mean_test_score`, `std_test_score` and `splitK_test_score`, and also `fit_seconds` and
        `dropped`. A combination that the race dropped has NaN for the folds it did not reach and for its mean and
        deviation.

    Examples
    --------
    >>> from margrave import SVCCV
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SVCCV(Cs=[1, 10, 100], gammas=[0.01, 0.1]).fit(X, y)
    >>> len(model.cv_results_["params"])
    6
    >>> model.best_score_ > 0.95
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **without(SVC._parameter_constraints, "C", "gamma", "warm_start"),
        **_GRID,
    }

    def __init__(
        self,
        *,
        Cs: npt.ArrayLike = COSTS,
        gammas: npt.ArrayLike = GAMMAS,
        cv: Any = None,
        race: bool | float = False,
        scoring: Any = None,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        coef0: float = 0.0,
        shrinking: bool = True,
        probability: bool | str = False,
        tol: float = 1e-3,
        cache_size: float = 200,
        class_weight: Mapping[Any, float] | str | None = None,
        verbose: bool | int = False,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        random_state: Any = None,
        loss: str | LossLike | None = None,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        probability_rule: str = "auto",
        threshold: str | None = None,
    ) -> None:
        self.Cs = Cs
        self.gammas = gammas
        self.cv = cv
        self.race = race
        self.scoring = scoring
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.probability_rule = probability_rule
        self.threshold = threshold
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state
        self.loss = loss
        self.solver = solver
        self.max_seconds = max_seconds
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device

    def _own_params(self) -> Any:
        return {
            "C": getattr(self, "C_", 1.0),
            "loss": self.loss,
            **self._probability_params(),
        }


class SVRCV(_Search, SVR):
    """`SVR` that chooses C, γ and ε by cross-validation: by default the combination of least mean squared error.

    Parameters
    ----------
    Cs, gammas, cv, race : object
        As in `SVCCV`.
    scoring : str or callable, default=None
        As in `SVCCV`; minus the mean squared error by default. Names: "r2", "neg_root_mean_squared_error",
        "neg_mean_absolute_error", "explained_variance", "pinball:0.9", …
    epsilons : array-like, default=(0.1,)
        Half-widths of the tube to try.
    **others : object
        The other parameters are those of `SVR`.

    Attributes
    ----------
    C_, gamma_, epsilon_ : float
        The chosen values.
    best_params_ : dict
        The same by name.
    best_score_ : float
        Mean score of the best combination over the folds.
    cv_results_ : dict
        As in `SVCCV`.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVRCV
    >>> X = np.linspace(0, 6, 60).reshape(-1, 1)
    >>> model = SVRCV(Cs=[1, 10], gammas=[0.1, 1], epsilons=[0.01, 0.1]).fit(X, np.sin(X).ravel())
    >>> model.epsilon_
    0.01
    """

    _parameter_constraints: dict[str, Any] = {
        **without(SVR._parameter_constraints, "C", "gamma", "epsilon", "warm_start"),
        **_GRID,
        "epsilons": ["array-like"],
    }

    def __init__(
        self,
        *,
        Cs: npt.ArrayLike = COSTS,
        gammas: npt.ArrayLike = GAMMAS,
        epsilons: npt.ArrayLike = (0.1,),
        cv: Any = None,
        race: bool | float = False,
        scoring: Any = None,
        kernel: str | Callable[..., Any] = "rbf",
        degree: float = 3,
        coef0: float = 0.0,
        tol: float = 1e-3,
        shrinking: bool = True,
        cache_size: float = 200,
        verbose: bool | int = False,
        max_iter: int = -1,
        loss: str | LossLike | None = None,
        solver: str = "auto",
        max_seconds: float | None = None,
        gap_tol: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        intervals: bool = False,
    ) -> None:
        self.Cs = Cs
        self.gammas = gammas
        self.epsilons = epsilons
        self.cv = cv
        self.race = race
        self.scoring = scoring
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.tol = tol
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.verbose = verbose
        self.max_iter = max_iter
        self.loss = loss
        self.solver = solver
        self.max_seconds = max_seconds
        self.gap_tol = gap_tol
        self.n_jobs = n_jobs
        self.device = device
        self.intervals = intervals

    @property
    def epsilon(self) -> Any:
        """The chosen ε."""
        return getattr(self, "epsilon_", 0.1)

    def _own_params(self) -> Any:
        own = {"C": getattr(self, "C_", 1.0), "loss": self.loss, "epsilon": self.epsilon}
        return {**own, "probability": self.intervals}


__all__ = ["COSTS", "GAMMAS", "SVCCV", "SVRCV"]

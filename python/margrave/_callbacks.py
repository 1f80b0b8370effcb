"""scikit-learn's callback protocol, if the installed version has it."""

from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Without callbacks there is nothing to add."""

    def with_callbacks(fit: Any) -> Any:
        """Without callbacks there is nothing to set up."""
        return fit


class StopFit(Exception):
    """Raised by a progress report to stop a fit and keep the best model so far."""


class Steps:
    """Passes the steps of a fit to scikit-learn's callbacks, each step as a separate task."""

    def __init__(self, estimator: Any, X: Any = None, y: Any = None) -> None:
        self.estimator = estimator
        self.context = estimator._init_callback_context(max_subtasks=None)
        self.context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def __call__(self, step: Any) -> Any:
        task = self.context.subcontext(task_name=step["phase"])
        task.call_on_fit_task_begin(estimator=self.estimator, metadata=step)
        if task.call_on_fit_task_end(estimator=self.estimator, metadata=step):
            raise StopFit

    def close(self) -> None:
        """End of the fit."""
        self.context.call_on_fit_task_end(estimator=self.estimator)


class Reports:
    """Calls several reports in turn."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts

    def __call__(self, step: Any) -> Any:
        for part in self.parts:
            part(step)

    def close(self) -> None:
        """End of the fit."""
        for part in self.parts:
            part.close()


__all__ = ["CallbackSupportMixin", "Reports", "Steps", "StopFit", "with_callbacks"]

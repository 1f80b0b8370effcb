"""scikit-learn's callback protocol, where the installed version has it."""

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to support."""

    def with_callbacks(fit):
        """Nothing to set up."""
        return fit


class StopFit(Exception):
    """Raised inside a report of progress to end a fit with its best machine so far."""


class Steps:
    """Passes the steps of a fit on to callbacks, each step as a task of its own."""

    def __init__(self, estimator, X=None, y=None):
        self.estimator = estimator
        self.context = estimator._init_callback_context(max_subtasks=None)
        self.context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def __call__(self, step):
        task = self.context.subcontext(task_name=step["phase"])
        task.call_on_fit_task_begin(estimator=self.estimator, metadata=step)
        if task.call_on_fit_task_end(estimator=self.estimator, metadata=step):
            raise StopFit

    def close(self):
        """The fit is over."""
        self.context.call_on_fit_task_end(estimator=self.estimator)


class Reports:
    """Several reports as one."""

    def __init__(self, parts):
        self.parts = parts

    def __call__(self, step):
        for part in self.parts:
            part(step)

    def close(self):
        """The fit is over."""
        for part in self.parts:
            part.close()


__all__ = ["CallbackSupportMixin", "Reports", "Steps", "StopFit", "with_callbacks"]

"""The examples of the docstrings run, and every parameter is described."""

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import margrave

MODULES = [
    importlib.import_module(f"margrave.{found.name}")
    for found in pkgutil.iter_modules(margrave.__path__)
    if found.name not in ("__main__", "_core", "pytest_swap", "dask")
]
CLASSES = [getattr(margrave, name) for name in margrave.__all__ if inspect.isclass(getattr(margrave, name))]
ESTIMATORS = [one for one in CLASSES if hasattr(one, "fit")]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_run(module):
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


def section(text, name):
    """The text of a section of a docstring in numpydoc's format."""
    found = re.search(rf"^ *{name}\n *-+\n(.*?)(?=^ *[A-Z][a-z]+\n *---|\Z)", inspect.cleandoc(text), re.M | re.S)
    return found.group(1) if found else ""


def described(text):
    """Names that a section describes: lines such as `C : float` or `a, b : ndarray`."""
    lines = re.findall(r"^([A-Za-z_*][\w*, ]*?) :", text, re.M)
    return {name.strip().lstrip("*") for line in lines for name in line.split(",")}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_every_parameter_has_a_description_and_there_is_an_example(estimator):
    parameters = set(inspect.signature(estimator.__init__).parameters) - {"self"}
    listed = described(section(estimator.__doc__, "Parameters"))
    if estimator.__name__.endswith("CV"):
        # The others are those of the estimator they extend.
        base = set(inspect.signature(estimator.__mro__[2].__init__).parameters)
        assert "others" in listed
        parameters -= base
    assert parameters <= listed, sorted(parameters - listed)
    assert section(estimator.__doc__, "Attributes") and ">>>" in section(estimator.__doc__, "Examples")


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_every_public_attribute_of_a_fit_is_described(estimator, blobs):
    X, y = blobs
    model = estimator().fit(X, y.astype(float) if "SVR" in estimator.__name__ else y)
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    bases = estimator.__mro__[2].__doc__ if estimator.__name__.endswith("CV") else ""
    listed = described(section(estimator.__doc__, "Attributes")) | described(section(bases, "Attributes"))
    assert fitted <= listed, sorted(fitted - listed)


@pytest.mark.parametrize("name", [name for name in margrave.__all__ if callable(getattr(margrave, name))])
def test_everything_public_has_a_docstring(name):
    assert len(inspect.getdoc(getattr(margrave, name)) or "") > 20


def test_the_typed_sample_of_user_code_runs(tmp_path):
    import user_code

    assert user_code.main(tmp_path)[0].startswith("The objective is ")

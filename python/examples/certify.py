# %% [markdown]
# # Certify a model of another library
# `certify` takes a fitted model and its training data, and bounds its distance from the optimum, whichever library trained it.

# %%
from sklearn.datasets import make_classification
from sklearn.svm import SVC

import margrave

X, y = make_classification(n_samples=1500, n_features=12, n_informative=6, flip_y=0.15, random_state=1)

# %%
found = {}
for tol in (1.0, 1e-3):
    theirs = SVC(C=10.0, tol=tol).fit(X, y)
    found[tol] = margrave.certify(theirs, X, y)
    print(f"scikit-learn, tol = {tol:g}: {found[tol].summary()}")
assert found[1e-3].relative_gap < found[1.0].relative_gap

# %% [markdown]
# A model that was stopped too early looks like any other until it is certified.

# %%
import warnings  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    short = SVC(C=10.0, max_iter=200).fit(X, y)
proof = margrave.certify(short, X, y)
print(f"200 iterations: accuracy {short.score(X, y):.3f}, relative gap {proof.relative_gap:.2f}")
assert proof.relative_gap > 10 * found[1e-3].relative_gap

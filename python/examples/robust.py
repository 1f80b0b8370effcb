# %% [markdown]
# # Three labels in ten are wrong
# The hinge loss of a wrong label grows with the distance of the sample from the boundary; the sigmoid loss levels off at 1, so that
# single samples far on the wrong side have little effect.

# %%
import numpy as np

from margrave import SVC

rng = np.random.default_rng(4)


def sample(n):
    """Two classes along the first axis; distances have a long tail."""
    y = rng.integers(0, 2, n)
    far = 1.0 + rng.gamma(1.0, 1.5, size=n)
    X = np.column_stack([np.where(y == 1, far, -far) + 0.7 * rng.normal(size=n), rng.normal(size=n)])
    return X, y


X, clean = sample(800)
# Three in ten labels of the second class are wrong.
noisy = np.where((clean == 1) & (rng.random(800) < 0.3), 0, clean)
X_test, y_test = sample(5000)

# %%
score = {}
for loss in ("hinge", "sigmoid:eta=2"):
    model = SVC(C=10.0, kernel="linear", loss=loss).fit(X, noisy)
    score[loss] = model.score(X_test, y_test)
    print(f"{loss:15} accuracy on clean labels {score[loss]:.3f}, {len(model.support_)} support vectors")
assert score["sigmoid:eta=2"] > score["hinge"] + 0.01

# %% [markdown]
# A non-convex loss has no gap. The certificate has the objective, the stationarity, and the objective of the convex start under
# the same loss, which is not lower.

# %%
certificate = model.certificate_
print(certificate.summary())
assert certificate.objective <= certificate.start_objective

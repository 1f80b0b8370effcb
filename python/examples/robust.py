# %% [markdown]
# # Three labels in ten are wrong
# The hinge pays for a wrong label in proportion to how far the sample lies on the other side; the sigmoid loss levels off at one, counts the
# error, and lets the sample go.

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
# Labels of the second class are lost three times in ten.
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
# A loss that is not convex has no gap. What is known instead: the objective, how stationary it is, and that it is below that
# of the convex start under the same loss.

# %%
certificate = model.certificate_
print(certificate.summary())
assert certificate.objective <= certificate.start_objective

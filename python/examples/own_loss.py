# %% [markdown]
# # A loss of your own: counts
# The number of events at a place is a count, whose logarithmic mean is what a model should learn. The loss of a count y at the score z is
# minus the logarithm of its Poisson probability, exp(z) − y·z up to a constant. Value and slope, written with NumPy, are all that
# `SVR` needs; the certificate holds for this loss as for the built-in ones.

# %%
import numpy as np

from margrave import SVR


class Poisson:
    """Minus the log-likelihood of a count with mean exp(z)."""

    def __init__(self):
        self.calls = 0

    def value(self, y, z):
        self.calls += 1
        return np.exp(z) - y * z

    def slope(self, y, z):
        self.calls += 1
        return np.exp(z) - y


# %% [markdown]
# Counts along a line, with a mean that rises and falls.

# %%
rng = np.random.default_rng(0)
x = rng.uniform(0, 6, size=(300, 1))
mean = np.exp(1 + np.sin(x.ravel()))
counts = rng.poisson(mean).astype(float)

loss = Poisson()
model = SVR(loss=loss, C=1.0, gamma=0.5).fit(x, counts)
found = np.exp(model.predict(x))

print(model.certificate_.summary())
print(f"{loss.calls} calls of the functions for {len(x)} samples")
print(f"mean relative error of the means: {np.mean(np.abs(found - mean) / mean):.3f}")

assert model.certificate_.status == "optimal"
assert np.mean(np.abs(found - mean) / mean) < 0.15

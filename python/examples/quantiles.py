# %% [markdown]
# # Quantile bands
# The pinball loss at τ fits the τ-quantile; two models give a band.

# %%
import numpy as np

from margrave import SVR

rng = np.random.default_rng(0)


def sample(n):
    x = np.sort(rng.uniform(0, 6, n))
    return x[:, None], np.sin(x) + (0.15 + 0.1 * x) * rng.normal(size=n)


X, y = sample(500)
X_new, y_new = sample(4000)

# %%
bands = {tau: SVR(C=5.0, gamma=0.5, loss=f"pinball:tau={tau}").fit(X, y) for tau in (0.05, 0.5, 0.95)}
low, high = bands[0.05].predict(X_new), bands[0.95].predict(X_new)
inside = ((y_new >= low) & (y_new <= high)).mean()
print(f"{100 * inside:.1f} % of new samples lie in the 90 % band")
assert 0.84 < inside < 0.95
assert all(model.certificate_.relative_gap < 1e-3 for model in bands.values())

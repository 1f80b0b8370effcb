# %% [markdown]
# # Tune a grid
# `SVCCV` searches C and γ by cross-validation with shared kernels and warm starts, then fits the best combination on all samples.

# %%
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split

from margrave import SVC, SVCCV

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.4, random_state=0)
folds = StratifiedKFold(4, shuffle=True, random_state=0)
costs, gammas = (0.1, 1.0, 10.0, 100.0), (0.01, 0.03, 0.1, 0.3)

# %%
model = SVCCV(Cs=costs, gammas=gammas, cv=folds).fit(X_train, y_train)
print(
    f"C = {model.C_:g}, gamma = {model.gamma_:g}: {model.best_score_:.4f} in folds, {model.score(X_test, y_test):.4f} on new digits"
)
assert model.score(X_test, y_test) > 0.97

# %% [markdown]
# scikit-learn's own search also works, and finds the same parameters.

# %%
search = GridSearchCV(SVC(), {"C": costs, "gamma": gammas}, cv=folds).fit(X_train, y_train)
print(f"GridSearchCV: {search.best_params_}, {search.best_score_:.4f}")
assert abs(search.best_score_ - model.best_score_) < 1e-3

# %% [markdown]
# # Switch from scikit-learn in one line
# Only the import changes. Every fit now has a bound on its distance from the optimum.

# %%
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from margrave import SVC  # was: from sklearn.svm import SVC

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
model = make_pipeline(StandardScaler(), SVC(C=2.0, probability=True)).fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}")

# %% [markdown]
# The certificate, and probabilities that agree with the predictions.

# %%
certificate = model[-1].certificate_
print(certificate.summary())
assert certificate.relative_gap < 1e-4
chosen = model.classes_[model.predict_proba(X_test).argmax(axis=1)]
assert (chosen == model.predict(X_test)).all()

# %% [markdown]
# The same results as scikit-learn, up to the tolerance of both.

# %%
import numpy as np  # noqa: E402
from sklearn.svm import SVC as Theirs  # noqa: E402

theirs = make_pipeline(StandardScaler(), Theirs(C=2.0, tol=1e-6)).fit(X_train, y_train)
difference = np.abs(model.decision_function(X_test) - theirs.decision_function(X_test)).max()
print(f"largest difference of a score: {difference:.1e}")
assert difference < 5e-3

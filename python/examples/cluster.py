# %% [markdown]
# # Train on a Dask cluster
# A linear model over the partitions of a Dask array, a search whose trainings run on the workers, and the proof that nothing
# depends on how many of them there are. Two worker processes on this machine stand for a cluster.

# %%
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster
from sklearn.datasets import load_breast_cancer

from margrave import SVCCV, certify
from margrave.dask import DaskLinearSVC, DaskSVCCV

# %% [markdown]
# Worker processes import this file: what starts them stands behind the guard.

# %%
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    client = Client(cluster)

    X = da.random.default_rng(0).normal(size=(40_000, 10), chunks=(10_000, 10))
    y = (X[:, 0] - 2 * X[:, 1] + X[:, 2] > 0).astype(int)
    model = DaskLinearSVC(loss="logistic").fit(X, y)
    print(f"{X.npartitions} partitions, {len(client.nthreads())} workers: {model.certificate_.summary()}")
    assert model.certificate_.status == "optimal"

    # Predictions are lazy. The model is an ordinary `LinearSVC`, and one machine confirms the certificate.
    print(f"accuracy {(model.predict(X) == y).mean().compute():.4f}")
    checked = certify(model.to_local(), X.compute(), y.compute())
    assert abs(checked.gap - model.certificate_.gap) <= 1e-9 * checked.primal

    # A search sends the data to every worker once, and has the bits of the local search.
    A, b = load_breast_cancer(return_X_y=True)
    A = (A - A.mean(axis=0)) / A.std(axis=0)
    grid = {"Cs": (0.1, 1.0, 10.0), "gammas": (0.001, 0.01, 0.1, 1.0)}
    search = DaskSVCCV(**grid).fit(A, b)
    local = SVCCV(**grid).fit(A, b)
    print(f"C = {search.C_:g}, gamma = {search.gamma_:g}: {search.best_score_:.4f} in folds")
    assert np.array_equal(search.dual_coef_, local.dual_coef_)

    client.close()
    cluster.close()

"""The cells of the comparison: seeded synthetic sets, and real ones from a folder of data files.

Each cell: name -> (make() -> (X, y, X_test), gamma, C, epsilon or None). S1 to S3 follow the definitions in RESULTS.md.
"""

import gzip
import os

import numpy as np


def _standardise(train, test):
    mean, scale = train.mean(0), train.std(0)
    scale[scale == 0] = 1
    return (train - mean) / scale, (test - mean) / scale


def s1():
    from sklearn.datasets import make_classification

    X, y = make_classification(
        n_samples=30000,
        n_features=50,
        n_informative=20,
        n_redundant=10,
        n_clusters_per_class=4,
        class_sep=1.0,
        flip_y=0.03,
        random_state=1001,
    )
    a, b = _standardise(X[:20000], X[20000:])
    return a, np.where(y > 0, 1.0, -1.0)[:20000], b


def s2():
    rng = np.random.default_rng(1002)
    u = rng.uniform(0, 4, size=(60000, 2))
    y = np.where((np.floor(u[:, 0]) + np.floor(u[:, 1])) % 2 == 0, 1.0, -1.0)
    q, _ = np.linalg.qr(rng.standard_normal((20, 2)))
    X = (u - 2) @ q.T + 0.03 * rng.standard_normal((60000, 20))
    y = np.where(rng.random(60000) < 0.05, -y, y)
    return X[:50000], y[:50000], X[50000:]


def s3():
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(n_samples=30000, n_features=10, noise=1.0, random_state=1003)
    a, b = _standardise(X[:20000], X[20000:])
    y = (y - y[:20000].mean()) / y[:20000].std()
    return a, y[:20000], b


def _svm(folder, name, test=None):
    from sklearn.datasets import load_svmlight_file

    def one(file, d=None):
        X, y = load_svmlight_file(os.path.join(folder, file), n_features=d)
        return X, np.where(y > 0, 1.0, -1.0)

    X, y = one(name)
    return X, y, one(test, X.shape[1])[0][:10000] if test else X[:10000]


def _csv(folder, name):
    import pandas

    return pandas.read_csv(os.path.join(folder, name)).to_numpy(dtype=float)


def covtype(folder):
    A = _csv(folder, "covtype_50k.csv.gz")
    X, y = A[:, :-1], np.where(A[:, -1] == 2, 1.0, -1.0)
    low, high = X[:40000].min(0), X[:40000].max(0)
    X = (X - low) / np.where(high > low, high - low, 1)
    return X[:40000], y[:40000], X[40000:]


def mnist(folder):
    def read(name, skip):
        path = os.path.join(folder, name)
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as f:
            return np.frombuffer(f.read()[skip:], dtype=np.uint8)

    X = read("mnist_train_images.idx3.gz", 16).reshape(-1, 784)[:20000] / 255.0
    y = read("mnist_train_labels.idx1", 8)[:20000].astype(int)
    return X[:10000], np.where(y[:10000] % 2 == 0, 1.0, -1.0), X[10000:]


def skin(folder):
    A = _csv(folder, "skin_nonskin.csv.gz")
    order = np.random.default_rng(0).permutation(len(A))[:60000]
    X, y = A[order, :-1] / 255.0, np.where(A[order, -1] == 1, 1.0, -1.0)
    return X[:50000], y[:50000], X[50000:]


def cadata(folder):
    A = _csv(folder, "cadata.csv.gz")
    A, _ = _standardise(A, A[:1])
    return A[:, :-1], A[:, -1], A[:10000, :-1]


def abalone(folder):
    import pandas

    A = pandas.get_dummies(pandas.read_csv(os.path.join(folder, "abalone.csv.gz")), dtype=float)
    y = A.pop("rings" if "rings" in A else [c for c in A if A[c].nunique() == 28][0]).to_numpy()
    X, _ = _standardise(A.to_numpy(), A.to_numpy()[:1])
    return X, (y - y.mean()) / y.std(), X


def australian(folder):
    X, y, test = _svm(folder, "australian.svm.gz")
    return X.toarray(), y, test.toarray()


def cells(folder):
    """name -> (make, gamma, C, epsilon)"""
    found = {
        "s1-c1": (s1, 0.02, 1, None),
        "s1-c100": (s1, 0.02, 100, None),
        "s2": (s2, 2, 10, None),
        "s3": (s3, 0.1, 10, 0.1),
    }
    if folder and os.path.isdir(folder):
        found |= {
            "a9a": (lambda: _svm(folder, "a9a.svm.gz", "a9a.t.svm.gz"), 0.05, 1, None),
            "w8a": (lambda: _svm(folder, "w8a.svm.gz"), 0.05, 10, None),
            "ijcnn1": (lambda: _svm(folder, "ijcnn1.svm.gz", "ijcnn1.t.svm.gz"), 2, 32, None),
            "covtype": (lambda: covtype(folder), 4, 10, None),
            "mnist": (lambda: mnist(folder), 0.02, 10, None),
            "skin": (lambda: skin(folder), 10, 10, None),
            "cadata": (lambda: cadata(folder), 0.5, 10, 0.1),
            "abalone": (lambda: abalone(folder), 0.2, 10, 0.1),
            "australian": (lambda: australian(folder), 0, 1e4, None),
        }
    return found

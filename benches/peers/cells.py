"""The cells of the comparison: seeded synthetic sets, and real ones from a folder of data files.

Each cell: name -> (make() -> (X, y, X_test), gamma, C, epsilon or None). S1 to S3 follow the definitions in RESULTS.md.
Real sets whose file is missing are left out: `cells` names them.
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


def duplicates():
    """Like the set "phishing": few values per feature, one-hot, so that half of the rows are copies of others."""
    rng = np.random.default_rng(1004)
    values = rng.integers(2, 4, size=30)
    prototypes = np.column_stack([rng.integers(0, k, size=9000) for k in values])
    columns = [prototypes[:, [j]] == np.arange(k) for j, k in enumerate(values)]
    table = np.hstack(columns).astype(float)
    score = table @ rng.standard_normal(table.shape[1]) + 0.8 * rng.standard_normal(len(table))
    labels = np.where(score > np.median(score), 1.0, -1.0)
    # A few prototypes are common, most are rare.
    weight = 1.0 / (100.0 + np.arange(len(table)))
    drawn = rng.choice(len(table), size=15000, p=weight / weight.sum())
    y = np.where(rng.random(15000) < 0.01, -labels[drawn], labels[drawn])
    return table[drawn[:11000]], y[:11000], table[drawn[11000:]]


def arm():
    """Like the set "kin8nm": how far from a point an arm of eight links ends, by its angles, with noise."""
    rng = np.random.default_rng(1005)
    angles = rng.uniform(-np.pi / 2, np.pi / 2, size=(8192 + 4000, 8))
    direction = np.cumsum(angles, axis=1)
    end = np.column_stack([np.cos(direction).sum(1), np.sin(direction).sum(1)]) / 8
    y = np.hypot(end[:, 0] - 0.1, end[:, 1] - 0.1)
    y = (y - y.mean()) / y.std() + 0.2 * rng.standard_normal(len(y))
    return angles[:8192], y[:8192], angles[8192:]


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


def magic(folder, shuffled):
    """Sorted by class, as the file comes, or shuffled. All rows train; the test rows are every second one of them."""
    import pandas

    table = pandas.read_csv(os.path.join(folder, "magic04.csv.gz"))
    y = np.where(table.pop("class").to_numpy() == "g", 1.0, -1.0)
    X, _ = _standardise(table.to_numpy(dtype=float), table.to_numpy(dtype=float)[:1])
    if shuffled:
        order = np.random.default_rng(1006).permutation(len(y))
        X, y = X[order], y[order]
    return X, y, X[::2]


def smaller(cell, rows):
    """The cell with at most so many training and test rows, drawn with a seed and in their order."""
    make, *parameters = cell

    def draw():
        X, y, T = make()
        rng = np.random.default_rng(1007)

        def some(n):
            return np.sort(rng.choice(n, size=min(n, rows), replace=False))

        train, test = some(X.shape[0]), some(T.shape[0])
        return X[train], y[train], T[test]

    return (draw, *parameters)


def cells(folder):
    """The cells, name -> (make, gamma, C, epsilon), and the files that are missing, by cell."""
    found = {
        "s1-c1": (s1, 0.02, 1, None),
        "s1-c100": (s1, 0.02, 100, None),
        "s2": (s2, 2, 10, None),
        "s3": (s3, 0.1, 10, 0.1),
        "duplicates": (duplicates, 0.1, 10, None),
        "arm": (arm, 0.2, 1, 0.1),
    }
    # name -> files, cell
    real = {
        "magic04": (["magic04.csv.gz"], (lambda: magic(folder, False), 0.1, 1, None)),
        "magic04-shuffled": (["magic04.csv.gz"], (lambda: magic(folder, True), 0.1, 1, None)),
        "magic04-c100": (["magic04.csv.gz"], (lambda: magic(folder, False), 0.1, 100, None)),
        "phishing": (["phishing.svm.gz"], (lambda: _svm(folder, "phishing.svm.gz"), 0.1, 10, None)),
        "a9a": (
            ["a9a.svm.gz", "a9a.t.svm.gz"],
            (lambda: _svm(folder, "a9a.svm.gz", "a9a.t.svm.gz"), 0.05, 1, None),
        ),
        "w8a": (["w8a.svm.gz"], (lambda: _svm(folder, "w8a.svm.gz"), 0.05, 10, None)),
        "ijcnn1": (
            ["ijcnn1.svm.gz", "ijcnn1.t.svm.gz"],
            (lambda: _svm(folder, "ijcnn1.svm.gz", "ijcnn1.t.svm.gz"), 2, 32, None),
        ),
        "covtype": (["covtype_50k.csv.gz"], (lambda: covtype(folder), 4, 10, None)),
        "mnist": (
            ["mnist_train_images.idx3.gz", "mnist_train_labels.idx1"],
            (lambda: mnist(folder), 0.02, 10, None),
        ),
        "skin": (["skin_nonskin.csv.gz"], (lambda: skin(folder), 10, 10, None)),
        "cadata": (["cadata.csv.gz"], (lambda: cadata(folder), 0.5, 10, 0.1)),
        "abalone": (["abalone.csv.gz"], (lambda: abalone(folder), 0.2, 10, 0.1)),
        "australian": (["australian.svm.gz"], (lambda: australian(folder), 0, 1e4, None)),
    }
    missing = {}
    for name, (files, cell) in real.items():
        absent = [file for file in files if not (folder and os.path.exists(os.path.join(folder, file)))]
        if absent:
            missing[name] = absent
        else:
            found[name] = cell
    return found, missing

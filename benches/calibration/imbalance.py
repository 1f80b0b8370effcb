"""Log-loss and calibration error under imbalance, beside scikit-learn's sigmoid on the same machine.

usage: python benches/calibration/imbalance.py [--rows 1000] [--seeds 5]   (needs margrave, numpy and scikit-learn installed)

Each set is drawn by `make_classification` with a given share of the majority, --rows rows to train on and 20 000 to judge on. Machines
have C = 1, γ = scale, features of unit variance, without class weights or with "balanced" ones. A cell is the mean log-loss over the
seeds (expected calibration error, ten bins). The last column is our log-loss over scikit-learn's, less 1: the aim is at most 1 %.
"""

import argparse

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.svm import SVC

import margrave

SHARES = (0.5, 0.8, 0.9, 0.97)
RULES = ("auto", "agree", "free")
TEST = 20_000


def calibration_error(p, y, bins=10):
    place = np.minimum((p * bins).astype(int), bins - 1)
    return sum(abs(p[place == b].sum() - y[place == b].sum()) for b in range(bins)) / len(p)


def draw(share, seed, rows):
    X, y = make_classification(
        n_samples=rows + TEST,
        n_features=10,
        n_informative=5,
        n_redundant=2,
        weights=[share],
        flip_y=0.02,
        class_sep=0.8,
        random_state=seed,
    )
    X = (X - X[:rows].mean(0)) / X[:rows].std(0)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    print("| majority | class weights | auto | agree | free | scikit-learn | auto chose | auto / scikit-learn − 1 |")
    print("|---|---|---|---|---|---|---|---|")
    for share in SHARES:
        for weight in (None, "balanced"):
            found = {who: [] for who in (*RULES, "sklearn")}
            chosen = []
            for seed in range(args.seeds):
                A, a, B, b = draw(share, seed, args.rows)
                for rule in RULES:
                    machine = margrave.SVC(probability=True, class_weight=weight, probability_rule=rule).fit(A, a)
                    p = machine.predict_proba(B)[:, 1]
                    found[rule].append((log_loss(b, p), calibration_error(p, b)))
                    if rule == "auto":
                        chosen.append(machine.probability_rule_)
                peer = CalibratedClassifierCV(SVC(class_weight=weight), method="sigmoid", ensemble=False).fit(A, a)
                p = peer.predict_proba(B)[:, 1]
                found["sklearn"].append((log_loss(b, p), calibration_error(p, b)))
            mean = {who: np.mean(values, axis=0) for who, values in found.items()}
            cells = " | ".join(f"{mean[who][0]:.4f} ({mean[who][1]:.3f})" for who in (*RULES, "sklearn"))
            free = chosen.count("free")
            change = mean["auto"][0] / mean["sklearn"][0] - 1
            print(
                f"| {share:.0%} | {weight or 'none'} | {cells} | free {free}, agree {len(chosen) - free} |"
                f" {change:+.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

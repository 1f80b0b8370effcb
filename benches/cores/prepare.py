"""Writes the cells of the comparison of cores as NPZ files in single precision, and cells.txt. See `prepare`."""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "peers"))
from cells import cells  # noqa: E402

#: Cells in the order of the table.
CELLS = ["s1-c1", "s1-c100", "s2", "s3", "covtype"]


def main(data, out):
    """Writes the files of all cells whose data is there."""
    found, _ = cells(data)
    lines = []
    for name in CELLS:
        if name not in found:
            print(f"left out: {name}, because its file is not in {data}")
            continue
        make, gamma, cost, epsilon = found[name]
        # The two S1 differ in C alone.
        file = name.split("-")[0] + ".npz"
        if not os.path.exists(os.path.join(out, file)):
            X, y, _ = make()
            np.savez_compressed(os.path.join(out, file), X=X.astype(np.float32), y=y)
        lines.append(f"{name} {file} {gamma} {cost}" + (f" {epsilon}" if epsilon is not None else ""))
    with open(os.path.join(out, "cells.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

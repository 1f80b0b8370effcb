"""Reads the program's own model files: safetensors with a JSON header under the key "margrave"."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
TYPES = {"F64": "<f8", "F32": "<f4", "U32": "<u4", "U64": "<u8"}


@dataclass
class Model:
    """The header and the arrays of a model file."""

    header: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def scheme(self) -> str:
        return str(self.header.get("scheme", "one"))

    @property
    def outputs(self) -> int:
        return int(self.header["outputs"])

    @property
    def bias(self) -> Array:
        return self.arrays["bias"].astype(float)

    @property
    def rows(self) -> Array:
        return self.arrays["rows"].astype(int)

    def centres(self) -> Array:
        """The centres, dense, m × d."""
        m, d = int(self.header["centres"]), int(self.header["features"])
        if not self.header["sparse"]:
            return self.arrays["centres"].astype(float)
        dense = np.zeros((m, d))
        starts = self.arrays["centres.starts"].astype(int)
        at = np.repeat(np.arange(m), np.diff(starts))
        dense[at, self.arrays["centres.columns"].astype(int)] = self.arrays["centres.values"]
        return dense

    def coefficients(self) -> Array:
        """One column per output, m × k."""
        beta = self.arrays["beta"].astype(float)
        if self.scheme != "one-vs-one":
            return beta.reshape(-1, self.outputs)
        classes = len(self.header["labels"])
        own = self.arrays["classes"].astype(int)
        full = np.zeros((len(own), self.outputs))
        for output, (i, j) in enumerate(pairs(classes)):
            full[own == i, output] = beta[own == i, j - 1]
            full[own == j, output] = beta[own == j, i]
        return full

    def scaled(self, x: Array) -> Array:
        """Features as the kernel gets them: the program computes in double precision, whatever the precision of the file."""
        if self.header["scaling"] is None:
            return x
        return (x - self.arrays["scaling.shift"]) * self.arrays["scaling.factor"]


def pairs(classes: int) -> list[tuple[int, int]]:
    """The pairs of classes in the order of their binary models."""
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def parse(data: bytes) -> Model:
    """A model from the bytes of its file."""
    (length,) = struct.unpack("<Q", data[:8])
    described = json.loads(data[8 : 8 + length])
    header = json.loads(described.pop("__metadata__")["margrave"])
    body = data[8 + length :]
    arrays = {}
    for name, entry in described.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(body[begin:end], dtype=TYPES[entry["dtype"]])
        arrays[name] = values.reshape(entry["shape"])
    return Model(header, arrays)


def read(path: Path) -> Model:
    """The model in a file."""
    return parse(path.read_bytes())


def write(model: Model, path: Path) -> None:
    """Writes a model; the self-test uses it for forged ones."""
    names = {np.dtype(code): name for name, code in TYPES.items()}
    described: dict[str, Any] = {"__metadata__": {"margrave": json.dumps(model.header)}}
    body = b""
    for name, array in model.arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        described[name] = {
            "dtype": names[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)

"""Forged outcomes that the invariants must catch."""
from __future__ import annotations
from pathlib import Path

def main(program: Path, folder: Path) -> int:
    return 0

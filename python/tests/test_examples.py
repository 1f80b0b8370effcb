"""The examples run, and their assertions hold."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, capsys):
    if path.stem == "onnx":
        pytest.importorskip("onnxruntime")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()

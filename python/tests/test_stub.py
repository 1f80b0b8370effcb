"""The stub of the extension module agrees with the module."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import margrave
from margrave import _core


def test_the_stub_agrees_with_the_binary():
    tree = ast.parse((Path(margrave.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    public = {name for name in dir(_core) if not name.startswith("_")}
    assert public == set(functions) | set(classes)
    for name, node in functions.items():
        real = inspect.signature(getattr(_core, name)).parameters
        listed = [argument.arg for argument in node.args.args]
        assert list(real) == listed, name
        optional = [name for name, p in real.items() if p.default is not p.empty]
        assert listed[len(listed) - len(node.args.defaults) :] == optional, name
    for name, node in classes.items():
        own = getattr(_core, name)
        assert own.__bases__[0].__name__ == (node.bases[0].id if node.bases else "object"), name
        for method in (part for part in node.body if isinstance(part, ast.FunctionDef)):
            if method.name == "__new__" or method.decorator_list:
                continue
            real = list(inspect.signature(getattr(own, method.name)).parameters)
            assert real == [argument.arg for argument in method.args.args], f"{name}.{method.name}"


def test_stubtest_finds_nothing(tmp_path):
    """From a folder without the sources, so that the installed package is what is tested."""
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy.stubtest", "margrave._core", "--mypy-config-file", "mypy.ini"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed():
    assert (Path(margrave.__file__).parent / "py.typed").exists()

"""Changed code is another execution."""

import importlib.util
import sys

from components.code_version import code_fingerprint


def load(path, name, package=False):
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)] if package else None
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules.pop(name, None)
    return module


def test_a_module_and_its_data_and_all_of_a_package_count(tmp_path):
    files = {n: tmp_path / "p" / n for n in ("__init__.py", "a.py", "a.npz", "b.py", "below/c.py", "notes.md")}
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first")
    module, package = load(files["a.py"], "p.a"), load(files["__init__.py"], "p", package=True)
    fingerprints = {(code_fingerprint(module), code_fingerprint(package))}
    for name, in_module, in_package in [
        ("a.py", True, True),
        ("a.npz", True, True),
        ("b.py", False, True),
        ("below/c.py", False, True),
        ("notes.md", False, False),
    ]:
        before = code_fingerprint(module), code_fingerprint(package)
        files[name].write_text("second")
        after = code_fingerprint(module), code_fingerprint(package)
        assert (before[0] != after[0], before[1] != after[1]) == (in_module, in_package), name
        fingerprints.add(after)
    assert len(fingerprints) == 5

"""Finds licence files: LICENSE, LICENCE, COPYING, also in small letters and with an extension."""

import os
from collections.abc import Iterable


def licence_files(paths: Iterable[str]) -> list[str]:
    """Those of `paths` that are licence files, by their names."""
    return [path for path in paths if os.path.basename(path).lower().startswith(("license", "licence", "copying"))]

"""Optional packages: are they there, and what to say where they are not."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.errors import NotSupported


def present(package: str) -> bool:
    return find_spec(package) is not None


def missing(what: str, package: str, extra: str) -> NotSupported:
    return NotSupported(f'{what} needs the package {package}: pip install "holdfast[{extra}]"')

"""From `module:attribute` to the app. Only the operator's own words are ever imported here, never task data."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from types import ModuleType

import click

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError

HOW = "name it as module:attribute, for example --app tasks:app where tasks.py says `app = Holdfast(…)`"


class AppBroken(HoldfastError):
    """The app's own module raised while it was imported."""

    code = "app_broken"


def load_app(path: str) -> Holdfast:
    name, _, attribute = path.partition(":")
    if not name or name.endswith(".py") or "/" in name:
        raise click.UsageError(f"--app {path!r} is not a module; {HOW}")
    module = _imported(name)
    found: object = module
    for part in (attribute or "app").split("."):
        if not hasattr(found, part):
            raise click.UsageError(f"module {name!r} has no attribute {attribute or 'app'!r}{_apps_in(module)}; {HOW}")
        found = getattr(found, part)
    if not isinstance(found, Holdfast):
        kind = type(found).__name__
        raise click.UsageError(f"{name}:{attribute or 'app'} is a {kind}, not a Holdfast{_apps_in(module)}; {HOW}")
    return found


def _imported(name: str) -> ModuleType:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and (name == missing.name or name.startswith(f"{missing.name}.")):
            raise click.UsageError(
                f"there is no module {name!r}{_near(name)}; run this in the folder that holds it, or set PYTHONPATH"
            ) from None
        raise AppBroken(f"module {name!r} cannot be imported: {missing}") from missing
    except Exception as raised:
        raise AppBroken(
            f"module {name!r} raised while it was imported: {type(raised).__name__}: {raised}; --debug shows where"
        ) from raised


def _near(name: str) -> str:
    here = [entry.removesuffix(".py") for entry in os.listdir() if entry.endswith(".py")]
    close = difflib.get_close_matches(name, here, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _apps_in(module: ModuleType) -> str:
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, Holdfast))
    return f" (did you mean {module.__name__}:{apps[0]}?)" if apps else ""

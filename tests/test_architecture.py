"""The shape of the house, held by a test: who may import whom, what is public, where time and chance come from.

Everything is read from the source by `ast`; nothing of it is run, but for one fresh interpreter that imports holdfast.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
MODULES = {
    ".".join(("holdfast", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}

# A unit is a folder of src/holdfast or a module beside them. It may import itself and what stands here, nothing else.
# Plug-in folders are entered by their protocol only; what else is imported of them is named in full.
GROUND = {"errors", "clock", "model"}
RULES = GROUND | {"policy", "ids", "settings", "registry"}
PROTOCOLS = {
    "stores.protocol",
    "wakeups.protocol",
    "executors.protocol",
    "sinks.protocol",
    "events.bus",
    "events.facts",
}
ALLOWED: dict[str, set[str]] = {
    # The ground: nouns, errors, time, chance, decisions.
    "errors": set(),
    "version": set(),
    "clock": set(),
    "ids": {"clock"},
    "model": {"errors", "clock"},
    "policy": GROUND,
    "settings": GROUND | {"policy"},
    "registry": GROUND | {"settings"},
    "signals": {"errors", "settings"},
    # Plug-ins and what they plug into.
    "transports": GROUND | {"policy"},
    "wakeups": GROUND | {"policy", "ids", "transports"},
    "sinks": GROUND | {"policy", "portal", "stores.protocol", "transports", "version"},
    "events": {"model"},
    "stores": GROUND
    | {"policy", "ids", "wakeups.protocol", "wakeups.in_process"}
    | {"dispatcher.both_ways", "dispatcher.queries", "transports", "version"}
    | {"dispatcher.wire", "dispatcher.wire_data", "dispatcher.wire_flows", "dispatcher.wire_work"},
    "executors": RULES | {"context", "signals", "stores.protocol", "workflows"},
    # What a program holds in its hands.
    "portal": set(),
    "connections": {"stores.protocol"},
    "steps": RULES | {"portal", "signals"},
    "outputs": RULES | {"portal", "stores.protocol"},
    "waiting": GROUND | {"health", "stores.protocol", "wakeups.bell"},
    "client": RULES
    | {"connections", "events.bus", "health", "portal", "sinks.declaring", "stores.protocol", "waiting"},
    "handle": {"client", "errors", "model"},
    "calls": RULES | {"client"},
    "workflows": RULES | {"calls", "client"},
    "context": RULES | {"calls", "outputs", "steps", "stores.protocol", "workflows"},
    "declared": {"calls", "client", "context", "errors", "handle", "model", "registry"},
    "declare": RULES | {"calls", "context", "declared"},
    "desks": RULES | {"calls", "client", "handle"},
    "datasets": RULES | {"client", "desks", "outputs"},
    "sink_desks": RULES | {"desks"},
    # What a program holds that is told.
    "webhooks": GROUND | {"policy"},
    # The worker. worker.py alone wires the executors and the maintenance into it.
    "health": GROUND | {"ids", "events.bus", "events.facts"},
    "maintenance": GROUND | {"policy", "ids", "health", "sinks.declaring", "sinks.open", "wakeups.bell"} | PROTOCOLS,
    "runtime": RULES
    | PROTOCOLS
    | {"context", "health", "outputs", "portal", "version", "workflows"}
    | {"wakeups.bell", "wakeups.open", "wakeups.reports"},
    # The roots: they know everybody, but for concrete stores, which only stores/open.py does.
    "app": RULES
    | PROTOCOLS
    | {"calls", "client", "connections", "datasets", "declare", "declared", "desks", "handle", "sink_desks"}
    | {"runtime", "events.log", "stores.open", "testing", "transports", "workflows"},
    "manager": RULES
    | PROTOCOLS
    | {"desks", "health", "maintenance", "outputs", "runtime", "events.log", "stores.open"},
    "dispatcher": RULES
    | PROTOCOLS
    | {"client", "connections", "health", "maintenance", "runtime", "version", "wakeups.protocol"},
    # Doors and tools. No SQL, no policy of their own.
    "bench": RULES | {"app", "context", "declared", "runtime", "workflows"},
    "cli": RULES
    | PROTOCOLS
    | {"app", "bench", "calls", "client", "context", "datasets", "declared", "desks", "handle", "runtime"}
    | {"events.log", "version", "signals", "health", "sinks.declaring", "stores.open", "workflows"}
    | {"dispatcher.admission", "dispatcher.service", "dispatcher.serving", "dispatcher.upkeep"},
    "testing": RULES | PROTOCOLS | {"app", "declared", "portal", "stores.open"},
    "__main__": {"cli"},
    "__init__": {"app", "calls", "context", "errors", "handle", "manager", "model", "signals", "version"}
    | {"workflows"},
}
WIRING = {
    "holdfast.runtime.shift": {"executors.coroutine", "executors.process", "executors.thread", "maintenance"},
}
NEEDED = {"holdfast.policy.firing": {"cronsim"}}
"""What a decision needs besides: cronsim, which knows no clock and no store, only what a cron expression means."""
PLUGIN_FOLDERS = {"stores", "wakeups", "executors", "sinks", "events", "dispatcher"}

PUBLIC = [
    "Call",
    "Context",
    "Delays",
    "Event",
    "Exponential",
    "Failure",
    "Fixed",
    "Graph",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Linear",
    "Retention",
    "Retry",
    "Run",
    "Snooze",
    "Task",
    "TaskManager",
    "TaskStatus",
    "Unrecoverable",
    "__version__",
    "chain",
    "chord",
    "current_task",
    "group",
]

HEAVY = ["click", "starlette", "uvicorn", "jinja2", "asyncpg", "sqlite3", "aiohttp", "boto3", "nats"]


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def unit(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(module: str) -> Iterator[str]:
    """Every module that this one names in an import, wherever it stands."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def place(module: str) -> str:
    """As the table names it: the unit, or the module within a plug-in folder."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts and parts[0] in PLUGIN_FOLDERS else (parts[0] if parts else "__init__")


def dotted(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def calls(module: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree(module)) if isinstance(node, ast.Call))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_place_allows(module: str) -> None:
    own = unit(module)
    assert own in ALLOWED, f"{own} has no place in the house yet: give it one in ALLOWED"
    allowed = ALLOWED[own] | WIRING.get(module, set())
    for name in imported(module):
        if name.split(".")[0] != "holdfast" or (name == "holdfast" and own == "cli"):
            continue
        target = place(name)
        if unit(name) != own:
            assert target in allowed, f"{module} must not import {name}"


def test_every_place_in_the_table_is_taken() -> None:
    assert {unit(module) for module in MODULES} == set(ALLOWED)


@pytest.mark.parametrize("folder", sorted({"memory", "nats", "postgres", "sqlite"}))
def test_a_store_is_imported_by_nobody_but_itself(folder: str) -> None:
    """But for the rules of the memory store, by which the NATS store plans on its replica (ADR 17)."""
    home = f"holdfast.stores.{folder}"
    for module in MODULES:
        if folder == "memory" and module.startswith("holdfast.stores.nats."):
            continue
        if module != home and not module.startswith(f"{home}."):
            assert not [name for name in imported(module) if name == home or name.startswith(f"{home}.")], module


@pytest.mark.parametrize("module", [module for module in MODULES if unit(module) in ("model", "policy")])
def test_nouns_and_decisions_need_only_the_standard_library_and_msgspec(module: str) -> None:
    packages = {name.split(".")[0] for name in imported(module)}
    assert packages - sys.stdlib_module_names <= {"holdfast", "msgspec"} | NEEDED.get(module, set())


def test_nothing_that_ships_needs_a_test_framework() -> None:
    for module in MODULES:
        assert not {"pytest", "hypothesis"} & {name.split(".")[0] for name in imported(module)}, module


def test_the_public_names_are_exactly_these() -> None:
    assert holdfast.__all__ == PUBLIC == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(holdfast, name) is not None
    with pytest.raises(AttributeError):
        holdfast.nothing_of_the_kind  # noqa: B018


CLOCKS = {"time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "datetime.now", "datetime.utcnow"}
CLOCKS |= {"datetime.datetime.now", "datetime.today", "date.today", "datetime.date.today"}


@pytest.mark.parametrize("module", MODULES)
def test_time_is_read_only_by_the_clock(module: str) -> None:
    if module == "holdfast.clock":
        return
    assert not CLOCKS & {dotted(call.func) for call in calls(module)}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            assert not {"time", "time_ns", "monotonic", "monotonic_ns"} & {alias.name for alias in node.names}


@pytest.mark.parametrize("module", MODULES)
def test_chance_is_drawn_only_by_ids(module: str) -> None:
    if module == "holdfast.ids":
        return
    used = {dotted(node) for node in ast.walk(tree(module)) if isinstance(node, ast.Attribute)}
    assert "os.urandom" not in used
    draws = {"random", "uuid", "secrets"} & {name.split(".")[0] for name in imported(module)}
    # A seed that a caller of the suite gives is no chance: testing/ may build a seeded generator.
    assert not draws or (unit(module) == "testing" and draws == {"random"} and seeded_only(module))


def seeded_only(module: str) -> bool:
    uses = [call for call in calls(module) if dotted(call.func).startswith("random.")]
    return all(dotted(call.func) == "random.Random" and call.args for call in uses)


@pytest.mark.parametrize("module", MODULES)
def test_data_is_never_code(module: str) -> None:
    assert not {"pickle", "marshal", "shelve", "yaml", "dill"} & {name.split(".")[0] for name in imported(module)}
    assert not {"eval", "exec", "compile", "__import__"} & {dotted(call.func) for call in calls(module)}


IMPORTERS = {
    "holdfast": "its own public names",
    "holdfast.stores.open": "a store's folder, by a scheme out of a fixed table",
    "holdfast.executors.child": "the module in which the worker's own registry found the handler",
    "holdfast.cli.apps": "the app that the user named on the command line",
}


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_imported_by_name_only_where_it_is_said(module: str) -> None:
    by_name = [call for call in calls(module) if dotted(call.func).split(".")[-1] in ("import_module", "run_path")]
    assert not by_name or module in IMPORTERS


@pytest.mark.parametrize("module", MODULES)
def test_sql_is_never_put_together_from_pieces(module: str) -> None:
    """No call of execute… whose statement is an f-string, a sum, a % or a format; but a PRAGMA takes no parameters."""
    for call in calls(module):
        if not isinstance(call.func, ast.Attribute) or not call.func.attr.startswith("execute") or not call.args:
            continue
        statement = call.args[0]
        built = isinstance(statement, ast.JoinedStr | ast.BinOp) or (
            isinstance(statement, ast.Call) and dotted(statement.func).endswith(".format")
        )
        assert not built or ast.unparse(statement)[2:].startswith("PRAGMA "), f"{module}:{call.lineno}"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_answers_for(module: str) -> None:
    if MODULES[module].read_text().strip():
        assert ast.get_docstring(tree(module)), f"{module} has no header"


def test_importing_holdfast_loads_nothing_heavy() -> None:
    code = "import sys, holdfast; holdfast.Holdfast; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in ran.stdout.split()}
    assert "holdfast" in loaded
    assert not loaded & set(HEAVY)

"""The OpenAPI document, made from the table of routes and the types on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.dispatcher.routes import Route
from holdfast.dispatcher.rules import ruled
from holdfast.dispatcher.wire import Problem
from holdfast.version import __version__

_PROBLEMS = {
    401: "No token, or one that is not good.",
    403: "The token lacks the scope.",
    404: "There is no such thing.",
    408: "The body did not come whole in time.",
    409: "Refused: by the state of a task, by its lease, or because the store cannot do it.",
    413: "Too large.",
    415: "Not sent as JSON.",
    422: "Not what this call takes.",
    503: "The store is away; the same call can be made again.",
}
_BODIED = (408, 413, 415)


def document(table: Sequence[Route]) -> bytes:
    kinds = [kind for route in table for kind in (route.query, route.body, route.answer) if kind is not None]
    _, plain = msgspec.json.schema_components([*kinds, Problem], ref_template="#/components/schemas/{name}")
    schemas = ruled(plain)
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    asked = {_ref_name(route.query) for route in table}
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Holdfast dispatcher",
                "version": __version__,
                "description": "A durable task queue over HTTP. Times are ISO 8601 in UTC; every call can be repeated.",
            },
            "security": [{"token": []}],
            "paths": paths,
            "components": {
                "schemas": {name: schema for name, schema in schemas.items() if name not in asked},
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(route: Route, schemas: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "parameters": [*_path_parameters(route), *_query_parameters(route, schemas)],
        "responses": {"200": _answer(route), **_problems(route)},
    }
    if route.scopes:
        operation["description"] = f"Scope: {' or '.join(route.scopes)}."
    else:
        operation["security"] = []
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(route.body)}}}
    return operation


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", route.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(route: Route, schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    form = schemas[_ref_name(route.query)]
    required = form.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in form["properties"].items()
    ]


def _answer(route: Route) -> dict[str, Any]:
    if route.answer is None:
        media = "text/plain" if route.path == "/metrics" else "application/json"
        return {"description": "As it says.", "content": {media: {"schema": {}}}}
    content: dict[str, Any] = {"application/json": {"schema": _ref(route.answer)}}
    if "follow" in route.query.__struct_fields__:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {"description": "Done.", "content": content}


def _problems(route: Route) -> dict[str, Any]:
    statuses = [status for status in _PROBLEMS if route.body is not None or status not in _BODIED]
    if not route.scopes:
        statuses = [422, 503]
    content = {"application/problem+json": {"schema": _ref(Problem)}}
    return {str(status): {"description": _PROBLEMS[status], "content": content} for status in statuses}


def _ref(kind: Any) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{_ref_name(kind)}"}


def _ref_name(kind: Any) -> str:
    return str(kind.__name__)

"""The description of the HTTP interface, by OpenAPI 3.1."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from fpstore import __version__
from fpstore.service.requests import OPERATIONS

MATCH = {
    "type": "object",
    "properties": {
        "fingerprint": {"type": "string"},
        "distance": {"type": "integer"},
        "ids": {"type": "array", "items": {"type": ["string", "integer"]}},
        "id": {"type": ["string", "integer"], "description": "of an LSH index"},
        "similarity": {"type": "number", "description": "of an LSH index"},
    },
}
ANSWER = {
    "type": "object",
    "required": ["matches", "more"],
    "properties": {
        "matches": {"type": "array", "items": {"$ref": "#/components/schemas/Match"}},
        "more": {"type": "boolean", "description": "whether a limit left out matches"},
        "inserted": {"type": "boolean"},
        "reason": {"enum": ["near", "stored", "no words", None]},
    },
}
ANSWERS = {"type": "array", "items": {"$ref": "#/components/schemas/Answer"}}
OF_ROWS = {
    "anyOf": [
        {"$ref": "#/components/schemas/Answer"},
        {"type": "object", "required": ["results"], "properties": {"results": ANSWERS}},
    ]
}


def _counts(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "integer"} for name in names}
    return {"type": "object", "required": [*names], "properties": properties}


RESPONSES = {
    "compare": _counts("distance"),
    "insert": _counts("changed"),
    "upsert": _counts("changed"),
    "delete": _counts("removed", "missing"),
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}
FAILED = {
    "description": "the request is refused, or failed",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


def describe() -> dict[str, Any]:
    """Return the document of ``/openapi.json``."""
    template = "#/components/schemas/{name}"
    references, schemas = msgspec.json.schema_components(
        list(OPERATIONS.values()), ref_template=template
    )
    paths: dict[str, Any] = {}
    for (name, kind), reference in zip(OPERATIONS.items(), references, strict=True):
        summary = (inspect.getdoc(kind) or "").partition("\n")[0]
        media = {
            "application/json": {"schema": reference},
            "application/msgpack": {"schema": reference},
        }
        for prefix in ("", "/stores/{store}"):
            post: dict[str, Any] = {
                "summary": summary,
                "requestBody": {"required": True, "content": media},
                "responses": {"200": _content(RESPONSES.get(name, OF_ROWS)), "default": FAILED},
            }
            if prefix:
                post["parameters"] = [_in_path("store")]
            paths[f"{prefix}/{name}"] = {"post": post}
    for path, summary in (
        ("/health", "Whether the stores are open."),
        ("/stats", "The figures of the stores."),
        ("/ids/{id}", "The fingerprints of an id."),
        ("/fingerprints/{digits}", "The ids of a fingerprint."),
    ):
        get: dict[str, Any] = {
            "summary": summary,
            "responses": {"200": _content({"type": "object"}), "default": FAILED},
        }
        if "{" in path:
            get["parameters"] = [_in_path(path.partition("{")[2].rstrip("}"))]
        paths[path] = {"get": get}
    return {
        "openapi": "3.1.0",
        "info": {"title": "fpstore", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**schemas, "Match": MATCH, "Answer": ANSWER, "Error": ERROR}},
    }


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": "the answer", "content": {"application/json": {"schema": schema}}}


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}

"""Schemas of all operators in all versions, and registration of further ones."""

from sardonyx._core.defs import (
    OpSchema,
    SchemaError,
    deregister_schema,
    get_all_schemas,
    get_all_schemas_with_history,
    get_schema,
    has_schema,
    register_schema,
    schema_version_map,
    set_domain_to_version,
)

__all__ = [
    "OpSchema",
    "SchemaError",
    "deregister_schema",
    "get_all_schemas",
    "get_all_schemas_with_history",
    "get_schema",
    "has_schema",
    "register_schema",
    "schema_version_map",
    "set_domain_to_version",
]

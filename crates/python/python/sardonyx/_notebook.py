"""Tables that notebooks show for sessions."""

from __future__ import annotations

import collections
import html
from collections.abc import Iterable
from typing import Any


def session(session: Any) -> str:
    """The tables of a session: how it was made, inputs, outputs, and its steps by operator."""
    operators = collections.Counter(op for _, op, _ in session.steps())
    facts = [
        ("graph", session.info["graph_name"]),
        ("threads", session.threads),
        ("precision", session.precision),
        ("bytes made ahead of time", session.made_bytes),
        ("steps", sum(operators.values())),
    ]
    return (
        "<div>"
        + _table("Session", ("property", "value"), facts)
        + _table("Inputs", ("name", "type"), _ports(session.inputs))
        + _table("Outputs", ("name", "type"), _ports(session.outputs))
        + _table("Steps", ("operator", "number"), operators.most_common())
        + "</div>"
    )


def _ports(ports: Iterable[Any]) -> list[tuple[str, str]]:
    return [(port.name, port.type or "") for port in ports]


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><caption>{html.escape(title)}</caption><tr>{head}</tr>{body}</table>"

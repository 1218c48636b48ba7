"""Tables that notebooks show for sessions, trainers and profiles."""

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


def trainer(trainer: Any) -> str:
    """The tables of a trainer: its state variables, and inputs and outputs of inference and of each step."""
    facts = [
        ("training steps", trainer.entries),
        ("seed", trainer.seed),
        ("precision", trainer.precision),
        *(("warning", warning) for warning in trainer.warnings),
    ]
    tables = [
        _table("Trainer", ("property", "value"), facts),
        _table("State", ("name", "type"), trainer.state.types.items()),
        _table("Inference: inputs", ("name", "type"), _ports(trainer.inference_inputs)),
        _table("Inference: outputs", ("name", "type"), _ports(trainer.inference_outputs)),
    ]
    for entry in range(trainer.entries):
        tables += [
            _table(f"Step {entry}: inputs", ("name", "type"), _ports(trainer.inputs(entry))),
            _table(f"Step {entry}: outputs", ("name", "type"), _ports(trainer.outputs(entry))),
        ]
    return "<div>" + "".join(tables) + "</div>"


def profile(profile: Any) -> str:
    """The tables of a profile: the whole run, operators, and the slowest steps."""
    facts = [
        ("run (us)", f"{profile.run_us:g}"),
        ("runs", profile.runs),
        ("threads", profile.threads),
        ("steps", len(profile.steps)),
    ]
    total = sum(step.us for step in profile.steps)

    def share(us: float) -> str:
        return f"{100 * us / total:.1f} %" if total else ""

    operators = [(op, f"{us:g}", share(us)) for op, us in profile.operators().items()]
    steps = [(step.node, step.op, step.kernel, f"{step.us:g}", share(step.us)) for step in profile.slowest()]
    return (
        "<div>"
        + _table("Profile", ("property", "value"), facts)
        + _table("Operators", ("operator", "us", "share"), operators)
        + _table("Slowest steps", ("node", "operator", "kernel", "us", "share"), steps)
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

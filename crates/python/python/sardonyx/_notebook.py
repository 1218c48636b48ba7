"""HTML tables that notebooks show for sessions, trainers and profiles."""

from __future__ import annotations

import collections
import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sardonyx._core.session import Port, Session, Trainer
    from sardonyx._profile import Profile


def session(session: Session) -> str:
    """Renders a session: its options, inputs, outputs, and the number of steps of each operator."""
    operators = collections.Counter(op for _, op, _ in session.steps())
    facts: list[tuple[str, object]] = [
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


def trainer(trainer: Trainer) -> str:
    """Renders a trainer: its state variables, and the inputs and outputs of inference and of each training step."""
    facts: list[tuple[str, object]] = [
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


def profile(profile: Profile) -> str:
    """Renders a profile: the whole run, the operators, and the slowest steps."""
    facts: list[tuple[str, object]] = [
        ("run (us)", f"{profile.run_us:g}"),
        ("runs", profile.runs),
        ("threads", profile.threads),
        ("steps", len(profile.steps)),
    ]
    total = sum(step.us for step in profile.steps)
    operators = [(op, f"{us:g}", _share(us, total)) for op, us in profile.operators().items()]
    steps = [
        (step.node, step.op, step.kernel, f"{step.us:g}", _share(step.us, total)) for step in profile.slowest()
    ]
    return (
        "<div>"
        + _table("Profile", ("property", "value"), facts)
        + _table("Operators", ("operator", "us", "share"), operators)
        + _table("Slowest steps", ("node", "operator", "kernel", "us", "share"), steps)
        + "</div>"
    )


def _share(us: float, total: float) -> str:
    return f"{100 * us / total:.1f} %" if total else ""


def _ports(ports: Iterable[Port]) -> list[tuple[str, str]]:
    return [(port.name, port.type or "") for port in ports]


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><caption>{html.escape(title)}</caption><tr>{head}</tr>{body}</table>"

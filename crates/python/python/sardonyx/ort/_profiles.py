"""Profiles of sessions as files, which browsers show."""

from __future__ import annotations

import itertools
import os
import threading
import time
from typing import Any

from sardonyx._core import session as _core
from sardonyx.ort._options import CPU_PROVIDER


class ProfileFile:
    """The profile of a session, and the file that it is written to once."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._session: _core.Session | None = None
        self._made = 0
        self._has_ended = False
        #: Where runs are recorded.
        self.recorder = _core.Profile()

    def begin(self, session: _core.Session, made: int) -> None:
        """Sets the session whose runs are recorded, and how many microseconds it took to make it."""
        self._session, self._made = session, made

    def end(self) -> str:
        """Writes the profile and returns the name of its file; an empty text if it was written before."""
        session = self._session
        if self._has_ended or session is None:
            return ""
        self._has_ended = True
        # Not needed by programs that write no profile.
        import json

        events = [_event("Session", "session_initialization", 0, self._made, {})]
        steps = session.steps()
        for start, took, run in self.recorder.end():
            events.append(_event("Session", "model_run", start, took, {}))
            for step, began, lasted in run:
                node, op, kernel = steps[step]
                facts = {"op_name": op, "provider": CPU_PROVIDER, "node_index": str(step), "kernel": kernel}
                events.append(_event("Node", f"{node}_kernel_time", start + began, lasted, facts))
        return _write_new(self._prefix, json.dumps(events))


def _write_new(prefix: str, content: str) -> str:
    """Writes a file that was not there, and returns its name."""
    now = time.time()
    start = time.strftime(f"{prefix}_%Y-%m-%d_%H-%M-%S", time.localtime(now))
    milliseconds = int(now % 1 * 1000)
    for number in itertools.count():
        name = f"{start}_{milliseconds:03}{f'_{number}' if number else ''}.json"
        try:
            with open(name, "x", encoding="utf-8") as file:
                file.write(content)
            return name
        except FileExistsError:
            # Another session ended in the same millisecond.
            continue
    raise AssertionError("numbers do not end")


def _event(kind: str, name: str, start: int, took: int, facts: dict[str, str]) -> dict[str, Any]:
    """A part of a profile, in the form that browsers show: times are in microseconds."""
    return {
        "cat": kind,
        "pid": os.getpid(),
        "tid": threading.get_native_id(),
        "dur": took,
        "ts": start,
        "ph": "X",
        "name": name,
        "args": facts,
    }

"""The distribution onnxruntime, for programs that ask which one is installed while Sardonyx is in its place."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from sardonyx import ort
from sardonyx._onnxruntime import NAME


class OnnxRuntimeDistribution(importlib.metadata.Distribution):
    """What is said of the distribution onnxruntime."""

    def read_text(self, filename: str) -> str | None:
        """The text of a file of metadata; there is one."""
        if filename != "METADATA":
            return None
        version, summary = ort.__version__, ort.get_build_info()
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {summary}\n"

    def locate_file(self, path: Any) -> Any:
        """Refused: nothing of the distribution lies in a file."""
        raise NotImplementedError(f"no file of {NAME} is here: Sardonyx takes its place")

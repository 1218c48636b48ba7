"""Metadata of a distribution onnxruntime, for programs that ask which version is installed while Sardonyx replaces it."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, NoReturn

from sardonyx import ort
from sardonyx._shims.onnxruntime.replace import NAME

if TYPE_CHECKING:
    from os import PathLike


class OnnxRuntimeDistribution(importlib.metadata.Distribution):
    """A distribution that has metadata and no files."""

    def read_text(self, filename: str) -> str | None:
        """Returns the text of the file METADATA, and None for others."""
        if filename != "METADATA":
            return None
        version, summary = ort.__version__, ort.get_build_info()
        return f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {summary}\n"

    def locate_file(self, path: str | PathLike[str]) -> NoReturn:
        """Refuses: the distribution has no files."""
        raise NotImplementedError(f"no file of {NAME} is here: Sardonyx takes its place")

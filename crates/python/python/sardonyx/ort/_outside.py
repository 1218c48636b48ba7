"""What a caller gives a session beside the model: weights, contents of data files, the directory of data files, sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.ort import _errors

#: The entry of the configuration that names the directory of the data files of a model given as bytes.
DIRECTORY_KEY = "session.model_external_initializers_file_folder_path"


class Outside:
    """What :func:`sardonyx._core.session.open_for_ort` reads, in its attributes. Keeps values and contents alive."""

    def __init__(self) -> None:
        #: Sizes by the denotation of their axis.
        self.denoted: list[tuple[str, int]] = []
        #: Contents of data files, by location.
        self.files: list[tuple[str, bytes]] = []
        #: Values in the place of initializers; whether the model must have them in a data file.
        self.initializers: list[tuple[str, Any, bool]] = []
        self.directory: str | None = None

    def add_initializer(self, name: str, value: Any) -> None:
        """Adds a value in the place of any initializer of this name."""
        if any(name == known for known, _, _ in self.initializers):
            raise _refused(f"the initializer '{name}' was given before", "give each of them once")
        self.initializers.append((name, _content(name, value), False))

    def add_external(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Adds values in the place of initializers that lie in data files."""
        _demand_as_many("names", len(names), "values", len(values))
        self.initializers.extend((name, _content(name, value), True) for name, value in zip(names, values, strict=True))

    def add_files(self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]) -> None:
        """Adds contents of data files. A buffer may be longer than its length says."""
        _demand_as_many("names", len(names), "buffers", len(buffers))
        _demand_as_many("names", len(names), "lengths", len(lengths))
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            if not isinstance(name, str):
                raise TypeError(f"the name of a data file must be a str, not {type(name).__name__}")
            with memoryview(buffer) as view:
                size = view.nbytes
                if not 0 <= length <= size:
                    raise _refused(
                        f"the length of the data file '{name}' is {length}, but its buffer has {size} bytes",
                        "give the number of bytes that belong to the file",
                    )
                whole = isinstance(buffer, bytes) and length == size
                self.files.append((name, buffer if whole else bytes(view.cast("B")[:length])))


def _content(name: str, value: Any) -> Any:
    """Returns the array that a value holds."""
    from sardonyx.ort._values import OrtValue

    if not isinstance(value, OrtValue):
        raise _refused(
            f"the value of the initializer '{name}' is {type(value).__name__}, which is not an OrtValue",
            "make one of an array with OrtValue.ortvalue_from_numpy",
        )
    return value.numpy()


def _demand_as_many(what: str, count: int, others: str, given: int) -> None:
    if count != given:
        raise _refused(f"there are {count} {what} and {given} {others}", f"give as many {others} as {what}")


def _refused(message: str, help: str) -> Exception:
    return _errors.made(_errors.InvalidArgument, message, code="argument", help=help)

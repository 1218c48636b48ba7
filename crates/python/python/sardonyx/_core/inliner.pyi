from collections.abc import Sequence

def inline_local_functions(model: bytes, convert_version: bool, /) -> bytes:
    """Inlines the functions of a serialized ModelProto.

    Functions whose operators are not the same at the versions of the model are converted, if that
    is asked for; calls of those that are not stay.
    """
def inline_selected_functions(
    model: bytes, function_ids: Sequence[tuple[str, str]], exclude: bool, /
) -> bytes:
    """Inlines some functions of a serialized ModelProto, named by domain and name."""
def inline_selected_functions2(
    model: bytes, function_ids: Sequence[tuple[str, str]], exclude: bool, /
) -> bytes:
    """The same, also for operators that the standard defines by functions."""

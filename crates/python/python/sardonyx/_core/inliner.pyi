from collections.abc import Sequence

def inline_local_functions(model: bytes, convert_version: bool, /) -> bytes:
    """Inlines the functions of a serialized ModelProto.

    Calls stay if the operators of the function differ at the opset versions of the model. With
    `convert_version`, such a function is converted and inlined if an exact equivalent exists.
    """
def inline_selected_functions(
    model: bytes, function_ids: Sequence[tuple[str, str]], exclude: bool, /
) -> bytes:
    """Inlines functions of a serialized ModelProto: those whose pair of domain and name is in
    `function_ids`, or with `exclude`, all others.
    """
def inline_selected_functions2(
    model: bytes, function_ids: Sequence[tuple[str, str]], exclude: bool, /
) -> bytes:
    """Inlines like `inline_selected_functions`, and also expands operators that the standard defines
    by functions.
    """

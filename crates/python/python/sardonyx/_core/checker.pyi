from typing import final

class ValidationError(Exception):
    """A model or a part of one breaks the standard."""

@final
class CheckerContext:
    """The model that a part is to be checked for."""
    ir_version: int
    """IR version of the model."""
    opset_imports: dict[str, int]
    """Versions of the operator sets that the model imports, by domain. A copy."""
    def __init__(self) -> None: ...

@final
class LexicalScopeContext:
    """The names that are visible around a part. Empty: parts are checked as if they stood in a main
    graph.
    """
    def __init__(self) -> None: ...

def check_value_info(bytes: bytes, checker_context: CheckerContext, /) -> None:
    """Checks a serialized ValueInfoProto."""
def check_tensor(bytes: bytes, checker_context: CheckerContext, /) -> None:
    """Checks a serialized TensorProto."""
def check_sparse_tensor(bytes: bytes, checker_context: CheckerContext, /) -> None:
    """Checks a serialized SparseTensorProto."""
def check_attribute(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized AttributeProto."""
def check_node(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized NodeProto."""
def check_function(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized FunctionProto."""
def check_graph(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized GraphProto."""
def check_model(
    bytes: bytes,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Checks a serialized ModelProto."""
def check_model_path(
    path: str,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Checks a model file, with its data files."""
def _open_external_data(
    base_dir: str, location: str, tensor_name: str, read_only: bool, /
) -> int:
    """Opens a data file of a model, beneath a directory and nowhere else, and gives its file
    descriptor, which the caller closes.
    """

from typing import final

class ValidationError(Exception):
    """Error about a model, or a part of one, that violates the ONNX standard."""

@final
class CheckerContext:
    """Facts about the model for which a part, such as one node, is checked."""
    ir_version: int
    """IR version of the model; -1 until it is set."""
    opset_imports: dict[str, int]
    """Versions of the operator sets that the model imports, by domain. Reading it returns a copy."""
    def __init__(self) -> None: ...

@final
class LexicalScopeContext:
    """Outer names that a checked part of a model, such as a node, can use. Always empty: parts are
    checked as members of a main graph.
    """
    def __init__(self) -> None: ...

def check_value_info(bytes: bytes, checker_context: CheckerContext, /) -> None:
    """Checks a serialized ValueInfoProto. Raises `ValidationError` if it violates the standard."""
def check_tensor(bytes: bytes, checker_context: CheckerContext, /) -> None:
    """Checks a serialized TensorProto. Raises `ValidationError` if it violates the standard."""
def check_sparse_tensor(bytes: bytes, checker_context: CheckerContext, /) -> None:
    """Checks a serialized SparseTensorProto. Raises `ValidationError` if it violates the standard."""
def check_attribute(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized AttributeProto. Raises `ValidationError` if it violates the standard."""
def check_node(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized NodeProto. Raises `ValidationError` if it violates the standard."""
def check_function(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized FunctionProto. Raises `ValidationError` if it violates the standard."""
def check_graph(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None:
    """Checks a serialized GraphProto. Raises `ValidationError` if it violates the standard."""
def check_model(
    bytes: bytes,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Checks a serialized ModelProto. Raises `ValidationError` if it violates the standard.

    `full_check` also infers types and shapes, and raises `InferenceError` for contradictions.
    `skip_opset_compatibility_check` accepts functions that import other versions of an operator set
    than the model. `check_custom_domain` requires operators of custom domains to be registered.
    """
def check_model_path(
    path: str,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None:
    """Checks a model file with its data files. Raises `ValidationError` if it violates the standard,
    or cannot be read.

    `full_check` also infers types and shapes, and raises `InferenceError` for contradictions.
    `skip_opset_compatibility_check` accepts functions that import other versions of an operator set
    than the model. `check_custom_domain` requires operators of custom domains to be registered.
    """
def _open_external_data(
    base_dir: str, location: str, tensor_name: str, read_only: bool, /
) -> int:
    """Opens the data file `location` of a model in `base_dir` and returns its file descriptor, which
    the caller must close. Raises `ValidationError` if the location leads out of the directory, has
    a symlink, or the file cannot be opened. `base_dir` is trusted and may be a symlink.
    """

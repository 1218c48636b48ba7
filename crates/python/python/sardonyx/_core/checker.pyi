from typing import final

class ValidationError(Exception): ...

@final
class CheckerContext:
    ir_version: int
    opset_imports: dict[str, int]
    def __init__(self) -> None: ...

@final
class LexicalScopeContext:
    def __init__(self) -> None: ...

def check_value_info(bytes: bytes, checker_context: CheckerContext, /) -> None: ...
def check_tensor(bytes: bytes, checker_context: CheckerContext, /) -> None: ...
def check_sparse_tensor(bytes: bytes, checker_context: CheckerContext, /) -> None: ...
def check_attribute(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None: ...
def check_node(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None: ...
def check_function(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None: ...
def check_graph(
    bytes: bytes, checker_context: CheckerContext, lexical_scope_context: LexicalScopeContext, /
) -> None: ...
def check_model(
    bytes: bytes,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None: ...
def check_model_path(
    path: str,
    full_check: bool = False,
    skip_opset_compatibility_check: bool = False,
    check_custom_domain: bool = False,
) -> None: ...
def _open_external_data(
    base_dir: str, location: str, tensor_name: str, read_only: bool, /
) -> int: ...

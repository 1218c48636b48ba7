from collections.abc import Sequence

class InferenceError(Exception): ...
class InferenceContext: ...
class GraphInferencer: ...

def infer_shapes(
    bytes: bytes, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> bytes: ...
def infer_shapes_path(
    model_path: str,
    output_path: str,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
    /,
) -> None: ...
def infer_function_output_types(
    function: bytes, input_types: Sequence[bytes], attributes: Sequence[bytes], /
) -> list[bytes]: ...

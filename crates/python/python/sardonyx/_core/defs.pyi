from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import final, overload

from sardonyx._core.shape_inference import InferenceContext

class SchemaError(Exception): ...

@final
class OpSchema:
    def __init__(
        self,
        name: str,
        domain: str,
        since_version: int,
        doc: str = "",
        *,
        inputs: Sequence[OpSchema.FormalParameter] = (),
        outputs: Sequence[OpSchema.FormalParameter] = (),
        type_constraints: Sequence[tuple[str, Sequence[str], str]] = (),
        attributes: Sequence[OpSchema.Attribute] = (),
        node_determinism: OpSchema.NodeDeterminism = ...,
    ) -> None: ...
    name: str
    domain: str
    @property
    def doc(self) -> str | None: ...
    @doc.setter
    def doc(self, doc: str) -> None: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def support_level(self) -> OpSchema.SupportType: ...
    @property
    def since_version(self) -> int: ...
    @property
    def deprecated(self) -> bool: ...
    @property
    def min_input(self) -> int: ...
    @property
    def max_input(self) -> int: ...
    @property
    def min_output(self) -> int: ...
    @property
    def max_output(self) -> int: ...
    @property
    def attributes(self) -> dict[str, OpSchema.Attribute]: ...
    @property
    def inputs(self) -> list[OpSchema.FormalParameter]: ...
    @property
    def outputs(self) -> list[OpSchema.FormalParameter]: ...
    @property
    def type_constraints(self) -> list[OpSchema.TypeConstraintParam]: ...
    @property
    def node_determinism(self) -> OpSchema.NodeDeterminism: ...
    @property
    def has_type_and_shape_inference_function(self) -> bool: ...
    @property
    def has_data_propagation_function(self) -> bool: ...
    def set_type_and_shape_inference_function(
        self, func: Callable[[InferenceContext], None]
    ) -> OpSchema: ...
    def get_type_and_shape_inference_function(self) -> Callable[[InferenceContext], None]: ...
    def _infer_node_outputs(
        self,
        node_bytes: bytes,
        value_types: dict[str, bytes],
        input_data: dict[str, bytes] = ...,
        input_sparse_data: dict[str, bytes] = ...,
        opset_imports: dict[str, int] = ...,
        ir_version: int = 14,
    ) -> dict[str, bytes]: ...
    @staticmethod
    def is_infinite(count: int, /) -> bool: ...
    @property
    def has_function(self) -> bool: ...
    @property
    def has_context_dependent_function(self) -> bool: ...
    @property
    def function_opset_versions(self) -> list[int]: ...
    @property
    def context_dependent_function_opset_versions(self) -> list[int]: ...
    @property
    def all_function_opset_versions(self) -> list[int]: ...
    @property
    def _function_body(self) -> bytes: ...
    def get_function_with_opset_version(self, opset_version: int, /) -> bytes: ...
    def get_context_dependent_function(
        self, node: bytes, input_types: Sequence[bytes], /
    ) -> bytes: ...
    def get_context_dependent_function_with_opset_version(
        self, opset_version: int, node: bytes, input_types: Sequence[bytes], /
    ) -> bytes: ...

    class FormalParameterOption(IntEnum):
        Single = 0
        Optional = 1
        Variadic = 2

    class DifferentiationCategory(IntEnum):
        Unknown = 0
        Differentiable = 1
        NonDifferentiable = 2

    class NodeDeterminism(Enum):
        Deterministic = 2
        NonDeterministic = 1
        Unknown = 0

    class SupportType(IntEnum):
        COMMON = 0
        EXPERIMENTAL = 1

    class AttrType(IntEnum):
        FLOAT = 1
        INT = 2
        STRING = 3
        TENSOR = 4
        GRAPH = 5
        FLOATS = 6
        INTS = 7
        STRINGS = 8
        TENSORS = 9
        GRAPHS = 10
        SPARSE_TENSOR = 11
        SPARSE_TENSORS = 12
        TYPE_PROTO = 13
        TYPE_PROTOS = 14

    @final
    class Attribute:
        @overload
        def __init__(
            self,
            name: str,
            type: OpSchema.AttrType,
            description: str = "",
            *,
            required: bool = True,
        ) -> None: ...
        @overload
        def __init__(self, name: str, default_value: object, description: str = "") -> None: ...
        @property
        def name(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def type(self) -> OpSchema.AttrType: ...
        @property
        def _default_value(self) -> bytes: ...
        @property
        def required(self) -> bool: ...

    @final
    class FormalParameter:
        def __init__(
            self,
            name: str,
            type_str: str,
            description: str = "",
            *,
            param_option: OpSchema.FormalParameterOption = ...,
            is_homogeneous: bool = True,
            min_arity: int = 1,
            differentiation_category: OpSchema.DifferentiationCategory = ...,
        ) -> None: ...
        @property
        def name(self) -> str: ...
        @property
        def types(self) -> set[str]: ...
        @property
        def type_str(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def option(self) -> OpSchema.FormalParameterOption: ...
        @property
        def is_homogeneous(self) -> bool: ...
        @property
        def min_arity(self) -> int: ...
        @property
        def differentiation_category(self) -> OpSchema.DifferentiationCategory: ...

    @final
    class TypeConstraintParam:
        def __init__(
            self, type_param_str: str, allowed_type_strs: Sequence[str], description: str = ""
        ) -> None: ...
        @property
        def type_param_str(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def allowed_type_strs(self) -> list[str]: ...

@overload
def has_schema(op_type: str, domain: str = "") -> bool: ...
@overload
def has_schema(op_type: str, max_inclusive_version: int, domain: str = "") -> bool: ...
@overload
def get_schema(op_type: str, domain: str = "") -> OpSchema: ...
@overload
def get_schema(op_type: str, max_inclusive_version: int, domain: str = "") -> OpSchema: ...
def get_all_schemas() -> list[OpSchema]: ...
def get_all_schemas_with_history() -> list[OpSchema]: ...
def schema_version_map() -> dict[str, tuple[int, int]]: ...
def set_domain_to_version(
    domain: str, min_version: int, max_version: int, last_release_version: int = -1
) -> None: ...
def register_schema(schema: OpSchema) -> None: ...
def deregister_schema(op_type: str, version: int, domain: str) -> None: ...

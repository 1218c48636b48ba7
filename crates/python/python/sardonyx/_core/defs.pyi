from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import final, overload

from sardonyx._core.shape_inference import InferenceContext

class SchemaError(Exception):
    """An operator is not there, or its schema is refused."""

@final
class OpSchema:
    """A version of an operator."""
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
    """Name of the operator."""
    domain: str
    """Domain of the operator; empty for `ai.onnx`."""
    @property
    def doc(self) -> str | None:
        """What the operator does; `None` if nobody says."""
    @doc.setter
    def doc(self, doc: str) -> None: ...
    @property
    def file(self) -> str:
        """The source file of the definition, which is not recorded."""
    @property
    def line(self) -> int:
        """The line of the definition, which is not recorded."""
    @property
    def support_level(self) -> OpSchema.SupportType:
        """How far the operator is supported."""
    @property
    def since_version(self) -> int:
        """The opset version that brought this form."""
    @property
    def deprecated(self) -> bool:
        """Whether models should not use it any more."""
    @property
    def min_input(self) -> int:
        """The fewest inputs."""
    @property
    def max_input(self) -> int:
        """The most inputs."""
    @property
    def min_output(self) -> int:
        """The fewest outputs."""
    @property
    def max_output(self) -> int:
        """The most outputs."""
    @property
    def attributes(self) -> dict[str, OpSchema.Attribute]:
        """The attributes by name."""
    @property
    def inputs(self) -> list[OpSchema.FormalParameter]:
        """The inputs."""
    @property
    def outputs(self) -> list[OpSchema.FormalParameter]:
        """The outputs."""
    @property
    def type_constraints(self) -> list[OpSchema.TypeConstraintParam]:
        """The type variables."""
    @property
    def node_determinism(self) -> OpSchema.NodeDeterminism:
        """Whether equal inputs give equal outputs."""
    @property
    def has_type_and_shape_inference_function(self) -> bool:
        """Whether types and shapes of outputs can be inferred."""
    @property
    def has_data_propagation_function(self) -> bool:
        """Whether the inference computes values that describe shapes. That of the standard's operators
        does, where there are any.
        """
    def set_type_and_shape_inference_function(
        self, func: Callable[[InferenceContext], None]
    ) -> OpSchema:
        """Sets what infers types and shapes: a callable that takes an InferenceContext."""
    def get_type_and_shape_inference_function(self) -> Callable[[InferenceContext], None]:
        """The callable that was set, or one that applies the rule of the standard."""
    def _infer_node_outputs(
        self,
        node_bytes: bytes,
        value_types: dict[str, bytes],
        input_data: dict[str, bytes] = ...,
        input_sparse_data: dict[str, bytes] = ...,
        opset_imports: dict[str, int] = ...,
        ir_version: int = 14,
    ) -> dict[str, bytes]:
        """The types of a node's outputs, by name, as TypeProtos."""
    @staticmethod
    def is_infinite(count: int, /) -> bool:
        """Whether a number of inputs or outputs means any number."""
    @property
    def has_function(self) -> bool:
        """Whether the operator is defined by a function, the same for every node."""
    @property
    def has_context_dependent_function(self) -> bool:
        """Whether the operator is defined by a function that depends on the node."""
    @property
    def function_opset_versions(self) -> list[int]:
        """Opset versions for which there are functions that are the same for every node."""
    @property
    def context_dependent_function_opset_versions(self) -> list[int]:
        """Opset versions for which there are functions that depend on the node."""
    @property
    def all_function_opset_versions(self) -> list[int]:
        """Both."""
    @property
    def _function_body(self) -> bytes:
        """The function as a FunctionProto; empty if there is none."""
    def get_function_with_opset_version(self, opset_version: int, /) -> bytes:
        """The function for an opset version as a FunctionProto; empty if there is none."""
    def get_context_dependent_function(
        self, node: bytes, input_types: Sequence[bytes], /
    ) -> bytes:
        """The function for a NodeProto whose inputs have these TypeProtos; empty if there is none."""
    def get_context_dependent_function_with_opset_version(
        self, opset_version: int, node: bytes, input_types: Sequence[bytes], /
    ) -> bytes:
        """The same for an opset version."""

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
        """A formal attribute."""
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
        def name(self) -> str:
            """Name of the attribute."""
        @property
        def description(self) -> str:
            """What it means."""
        @property
        def type(self) -> OpSchema.AttrType:
            """Type of its value."""
        @property
        def _default_value(self) -> bytes:
            """What an absent attribute means, as an AttributeProto; empty for nothing."""
        @property
        def required(self) -> bool:
            """Whether every node must have it."""

    @final
    class FormalParameter:
        """A formal input or output."""
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
        def name(self) -> str:
            """Name, for people."""
        @property
        def types(self) -> set[str]:
            """The names of the types that it may have; empty while it belongs to no operator."""
        @property
        def type_str(self) -> str:
            """A type variable, or a type."""
        @property
        def description(self) -> str:
            """What it means."""
        @property
        def option(self) -> OpSchema.FormalParameterOption:
            """How often it occurs."""
        @property
        def is_homogeneous(self) -> bool:
            """Whether all values of a variadic parameter have one type."""
        @property
        def min_arity(self) -> int:
            """The fewest values of a variadic parameter."""
        @property
        def differentiation_category(self) -> OpSchema.DifferentiationCategory:
            """What training may do with it."""

    @final
    class TypeConstraintParam:
        """A type variable."""
        def __init__(
            self, type_param_str: str, allowed_type_strs: Sequence[str], description: str = ""
        ) -> None: ...
        @property
        def type_param_str(self) -> str:
            """Name, such as `T`."""
        @property
        def description(self) -> str:
            """What it means."""
        @property
        def allowed_type_strs(self) -> list[str]:
            """The types that it may stand for."""

@overload
def has_schema(op_type: str, domain: str = "") -> bool:
    """Whether there is an operator, in some version up to the one given."""
@overload
def has_schema(op_type: str, max_inclusive_version: int, domain: str = "") -> bool: ...
@overload
def get_schema(op_type: str, domain: str = "") -> OpSchema:
    """The schema of an operator in the newest version up to the one given."""
@overload
def get_schema(op_type: str, max_inclusive_version: int, domain: str = "") -> OpSchema: ...
def get_all_schemas() -> list[OpSchema]:
    """The newest version of every operator."""
def get_all_schemas_with_history() -> list[OpSchema]:
    """Every version of every operator."""
def schema_version_map() -> dict[str, tuple[int, int]]:
    """Oldest and newest version of every operator set, by domain."""
def set_domain_to_version(
    domain: str, min_version: int, max_version: int, last_release_version: int = -1
) -> None:
    """Says which versions an operator set has."""
def register_schema(schema: OpSchema) -> None:
    """Adds a version of an operator."""
def deregister_schema(op_type: str, version: int, domain: str) -> None:
    """Takes a version of an operator away."""

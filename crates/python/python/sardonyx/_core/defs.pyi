from collections.abc import Callable, Sequence
from enum import Enum, IntEnum
from typing import final, overload

from sardonyx._core.shape_inference import InferenceContext

class SchemaError(Exception):
    """Error about an operator that does not exist, or a schema that cannot be registered."""

@final
class OpSchema:
    """Operator schema: name, version, inputs, outputs, attributes and documentation."""
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
    """Returns the name of the operator."""
    domain: str
    """Returns the domain of the operator; empty for `ai.onnx`."""
    @property
    def doc(self) -> str | None:
        """Returns the documentation of the operator; None if there is none."""
    @doc.setter
    def doc(self, doc: str) -> None: ...
    @property
    def file(self) -> str:
        """Returns `unknown`: the source file of the definition is not recorded."""
    @property
    def line(self) -> int:
        """Returns 0: the source line of the definition is not recorded."""
    @property
    def support_level(self) -> OpSchema.SupportType:
        """Returns the maturity of the operator, an `OpSchema.SupportType`."""
    @property
    def since_version(self) -> int:
        """Returns the opset version that introduced this version of the operator."""
    @property
    def deprecated(self) -> bool:
        """Whether new models should not use the operator."""
    @property
    def min_input(self) -> int:
        """Returns the smallest number of inputs."""
    @property
    def max_input(self) -> int:
        """Returns the greatest number of inputs; `OpSchema.is_infinite` of it is True for any number."""
    @property
    def min_output(self) -> int:
        """Returns the smallest number of outputs."""
    @property
    def max_output(self) -> int:
        """Returns the greatest number of outputs; `OpSchema.is_infinite` of it is True for any number."""
    @property
    def attributes(self) -> dict[str, OpSchema.Attribute]:
        """Returns the formal attributes as a dict of `OpSchema.Attribute` by name."""
    @property
    def inputs(self) -> list[OpSchema.FormalParameter]:
        """Returns the formal inputs as a list of `OpSchema.FormalParameter`."""
    @property
    def outputs(self) -> list[OpSchema.FormalParameter]:
        """Returns the formal outputs as a list of `OpSchema.FormalParameter`."""
    @property
    def type_constraints(self) -> list[OpSchema.TypeConstraintParam]:
        """Returns the type variables as a list of `OpSchema.TypeConstraintParam`."""
    @property
    def node_determinism(self) -> OpSchema.NodeDeterminism:
        """Whether equal inputs give equal outputs, as an `OpSchema.NodeDeterminism`."""
    @property
    def has_type_and_shape_inference_function(self) -> bool:
        """Whether types and shapes of the outputs can be inferred."""
    @property
    def has_data_propagation_function(self) -> bool:
        """Whether inference computes the values of shape tensors. Standard operators do if they have
        an inference function.
        """
    def set_type_and_shape_inference_function(
        self, func: Callable[[InferenceContext], None]
    ) -> OpSchema:
        """Sets the function that infers types and shapes of the outputs: a callable that takes an
        `InferenceContext`. Returns the schema. Raises `TypeError` if `func` is not callable.
        """
    def get_type_and_shape_inference_function(self) -> Callable[[InferenceContext], None]:
        """Returns the inference function that was set, or else a callable that applies the rule of the
        standard.
        """
    def _infer_node_outputs(
        self,
        node_bytes: bytes,
        value_types: dict[str, bytes],
        input_data: dict[str, bytes] = ...,
        input_sparse_data: dict[str, bytes] = ...,
        opset_imports: dict[str, int] = ...,
        ir_version: int = 14,
    ) -> dict[str, bytes]:
        """Infers the types of a node's outputs and returns them as a dict of serialized TypeProtos by
        name. Raises `ValidationError` if the node does not match the schema, and `InferenceError`
        if its inputs contradict each other.
        """
    @staticmethod
    def is_infinite(count: int, /) -> bool:
        """Whether a number of inputs or outputs stands for any number."""
    @property
    def has_function(self) -> bool:
        """Whether the operator is defined by a function that is the same for every node."""
    @property
    def has_context_dependent_function(self) -> bool:
        """Whether the operator is defined by a function that depends on the node."""
    @property
    def function_opset_versions(self) -> list[int]:
        """Returns the opset versions for which there is a function that is the same for every node."""
    @property
    def context_dependent_function_opset_versions(self) -> list[int]:
        """Returns the opset versions for which there is a function that depends on the node."""
    @property
    def all_function_opset_versions(self) -> list[int]:
        """Returns the opset versions for which a function defines the operator, in ascending order."""
    @property
    def _function_body(self) -> bytes:
        """Returns the function that defines the operator as a serialized FunctionProto; empty if there
        is none.
        """
    def get_function_with_opset_version(self, opset_version: int, /) -> bytes:
        """Returns the function that defines the operator at an opset version as a serialized
        FunctionProto; empty if there is none.
        """
    def get_context_dependent_function(
        self, node: bytes, input_types: Sequence[bytes], /
    ) -> bytes:
        """Returns the function that defines the operator for one node, as a serialized FunctionProto;
        empty if there is none.

        `node` is a serialized NodeProto, and `input_types` are the serialized TypeProtos of its
        inputs.
        """
    def get_context_dependent_function_with_opset_version(
        self, opset_version: int, node: bytes, input_types: Sequence[bytes], /
    ) -> bytes:
        """Returns the function that defines the operator for one node at an opset version, as a
        serialized FunctionProto; empty if there is none.

        `node` is a serialized NodeProto, and `input_types` are the serialized TypeProtos of its
        inputs.
        """

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
        """Formal attribute of an operator.

        Takes `(name, type, description="", *, required=True)`, or `(name, default_value,
        description="")` with a default value that is an AttributeProto.
        """
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
            """Returns the name of the attribute."""
        @property
        def description(self) -> str:
            """Returns the documentation of the attribute."""
        @property
        def type(self) -> OpSchema.AttrType:
            """Returns the type of the attribute, an `OpSchema.AttrType`."""
        @property
        def _default_value(self) -> bytes:
            """Returns the default value as a serialized AttributeProto; empty if there is none."""
        @property
        def required(self) -> bool:
            """Whether every node must have the attribute."""

    @final
    class FormalParameter:
        """Formal input or output of an operator."""
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
            """Returns the name of the parameter."""
        @property
        def types(self) -> set[str]:
            """Returns the names of the allowed types as a set; empty before the parameter belongs to an
            operator.
            """
        @property
        def type_str(self) -> str:
            """Returns the name of a type variable, such as `T`, or of a type, such as `tensor(float)`."""
        @property
        def description(self) -> str:
            """Returns the documentation of the parameter."""
        @property
        def option(self) -> OpSchema.FormalParameterOption:
            """Returns the number of values that the parameter takes, an `OpSchema.FormalParameterOption`."""
        @property
        def is_homogeneous(self) -> bool:
            """Whether all values of a variadic parameter must have the same type."""
        @property
        def min_arity(self) -> int:
            """Returns the smallest number of values of a variadic parameter."""
        @property
        def differentiation_category(self) -> OpSchema.DifferentiationCategory:
            """Returns whether gradients flow through the parameter, an `OpSchema.DifferentiationCategory`."""

    @final
    class TypeConstraintParam:
        """Type variable of an operator with its allowed types."""
        def __init__(
            self, type_param_str: str, allowed_type_strs: Sequence[str], description: str = ""
        ) -> None: ...
        @property
        def type_param_str(self) -> str:
            """Returns the name of the type variable, such as `T`."""
        @property
        def description(self) -> str:
            """Returns the documentation of the type variable."""
        @property
        def allowed_type_strs(self) -> list[str]:
            """Returns the names of the allowed types, such as `tensor(float)`."""

@overload
def has_schema(op_type: str, domain: str = "") -> bool:
    """Whether an operator exists, in a version up to `max_inclusive_version` if that is given."""
@overload
def has_schema(op_type: str, max_inclusive_version: int, domain: str = "") -> bool: ...
@overload
def get_schema(op_type: str, domain: str = "") -> OpSchema:
    """Returns the schema of an operator in the newest version up to `max_inclusive_version`; in the
    newest of all by default. Raises `SchemaError` if the operator has no such version.
    """
@overload
def get_schema(op_type: str, max_inclusive_version: int, domain: str = "") -> OpSchema: ...
def get_all_schemas() -> list[OpSchema]:
    """Returns the schema of every operator in its newest version."""
def get_all_schemas_with_history() -> list[OpSchema]:
    """Returns the schema of every version of every operator."""
def schema_version_map() -> dict[str, tuple[int, int]]:
    """Returns the oldest and newest version of every operator set, by domain."""
def set_domain_to_version(
    domain: str, min_version: int, max_version: int, last_release_version: int = -1
) -> None:
    """Sets the oldest and newest version of an operator set, a known or a new one.
    `last_release_version` is ignored. Raises `SchemaError` for an empty range or a version below 1.
    """
def register_schema(schema: OpSchema) -> None:
    """Registers a version of an operator. Raises `SchemaError` if the schema is invalid or the version
    exists already.
    """
def deregister_schema(op_type: str, version: int, domain: str) -> None:
    """Removes a version of an operator. Raises `SchemaError` if it is not registered."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        SparseTensorProto,
        TensorProto,
        TensorShapeProto,
        TypeProto,
    )

class InferenceError(Exception):
    """Types or shapes contradict each other."""

@final
class InferenceContext:
    """What an inference function knows of the node whose outputs it types. Made by the library only."""
    def get_attribute(self, name: str) -> AttributeProto | None:
        """An attribute that the node has, as an AttributeProto."""
    def get_num_inputs(self) -> int:
        """How many inputs the node has, those that are left out counted."""
    def get_input_type(self, idx: int) -> TypeProto | None:
        """The type of an input as a TypeProto, if it is known."""
    def has_input(self, idx: int) -> bool:
        """Whether the node has an input."""
    def get_input_data(self, idx: int) -> TensorProto | None:
        """An input that is a constant, as a TensorProto."""
    def get_num_outputs(self) -> int:
        """How many outputs the node has, those that are left out counted."""
    def get_output_type(self, idx: int) -> TypeProto:
        """What was said of an output so far, as a TypeProto."""
    def set_output_type(self, idx: int, type_proto: TypeProto) -> bool:
        """Says the type of an output."""
    def has_output(self, idx: int) -> bool:
        """Whether the node has an output."""
    def get_graph_attribute_inferencer(self, attr_name: str) -> GraphInferencer:
        """Who infers the graph that is an attribute."""
    def get_input_sparse_data(self, idx: int) -> SparseTensorProto | None:
        """An input that is a sparse constant, as a SparseTensorProto."""
    def get_symbolic_input(self, idx: int) -> TensorShapeProto | None:
        """The integers that an input is known to consist of, as a TensorShapeProto. No constants."""
    def get_display_name(self) -> str:
        """The node, for people."""

@final
class GraphInferencer:
    """Infers a graph that is an attribute. Made by the library only."""
    def do_inferencing(
        self,
        input_types: Sequence[TypeProto | None],
        input_data: Sequence[TensorProto | None],
    ) -> list[TypeProto]:
        """Types of the outputs of the graph, as TypeProtos, for types of its inputs. Values of inputs
        are not looked at.
        """

def infer_shapes(
    bytes: bytes, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> bytes:
    """Writes inferred types into a serialized ModelProto."""
def infer_shapes_path(
    model_path: str,
    output_path: str,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
    /,
) -> None:
    """Writes inferred types into a model file."""
def infer_function_output_types(
    function: bytes, input_types: Sequence[bytes], attributes: Sequence[bytes], /
) -> list[bytes]:
    """The types of the outputs of a serialized FunctionProto for types of its inputs and values of its
    attributes.
    """
def _infer_shapes(
    bytes: bytes, check_type: bool, strict_mode: bool, data_prop: bool, /
) -> bytes:
    """The same for the package's own function: there operators of a set that is not imported only mean
    that less is known.
    """
def _infer_shapes_path(
    model_path: str,
    output_path: str,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
    /,
) -> None:
    """The same for the package's own function, see [`_infer_shapes`]."""

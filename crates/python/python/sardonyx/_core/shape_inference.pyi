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
    """Error about types or shapes that contradict each other."""

@final
class InferenceContext:
    """Node whose output types an inference function infers. Made by shape inference only."""
    def get_attribute(self, name: str) -> AttributeProto | None:
        """Returns an attribute of the node as an AttributeProto; None if the node does not have it."""
    def get_num_inputs(self) -> int:
        """Returns the number of the node's inputs, omitted ones included."""
    def get_input_type(self, idx: int) -> TypeProto | None:
        """Returns the type of an input as a TypeProto; None if it is unknown."""
    def has_input(self, idx: int) -> bool:
        """Whether the node has the input."""
    def get_input_data(self, idx: int) -> TensorProto | None:
        """Returns the value of a constant input as a TensorProto; None if it is not constant."""
    def get_num_outputs(self) -> int:
        """Returns the number of the node's outputs, omitted ones included."""
    def get_output_type(self, idx: int) -> TypeProto:
        """Returns the type of an output that has been set so far, as a TypeProto."""
    def set_output_type(self, idx: int, type_proto: TypeProto) -> bool:
        """Sets the type of an output to a TypeProto. Returns True. Raises `RuntimeError` if the node
        does not have the output.
        """
    def has_output(self, idx: int) -> bool:
        """Whether the node has the output."""
    def get_graph_attribute_inferencer(self, attr_name: str) -> GraphInferencer:
        """Returns an object that infers the subgraph in an attribute. Raises `InferenceError` if the
        attribute is not a graph.
        """
    def get_input_sparse_data(self, idx: int) -> SparseTensorProto | None:
        """Returns the value of a constant sparse input as a SparseTensorProto; None if it is not a
        sparse constant.
        """
    def get_symbolic_input(self, idx: int) -> TensorShapeProto | None:
        """Returns the elements of an input that inference has computed, as a TensorShapeProto; None if
        they are unknown or the input is constant.
        """
    def get_display_name(self) -> str:
        """Returns a text that identifies the node in messages."""

@final
class GraphInferencer:
    """Inference of the subgraph in an attribute of a node. Made by shape inference only."""
    def do_inferencing(
        self,
        input_types: Sequence[TypeProto | None],
        input_data: Sequence[TensorProto | None],
    ) -> list[TypeProto]:
        """Infers the subgraph for these types of its inputs (TypeProtos or None) and returns the types
        of its outputs as TypeProtos. `input_data` is validated but not used.
        """

def infer_shapes(
    bytes: bytes, check_type: bool = False, strict_mode: bool = False, data_prop: bool = False
) -> bytes:
    """Infers types and shapes of a serialized ModelProto and returns the model with them.

    `check_type` compares operand types with the schemas. `strict_mode` raises `InferenceError` for
    every contradiction. `data_prop` also propagates the values of shape tensors.
    """
def infer_shapes_path(
    model_path: str,
    output_path: str,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
    /,
) -> None:
    """Infers types and shapes of a model file and writes the model with them to `output_path`, which
    may be the same file. The other arguments are those of `infer_shapes`.
    """
def infer_function_output_types(
    function: bytes, input_types: Sequence[bytes], attributes: Sequence[bytes], /
) -> list[bytes]:
    """Infers the output types of a serialized FunctionProto and returns them as serialized TypeProtos.

    `input_types` are serialized TypeProtos, and `attributes` serialized AttributeProtos. Raises
    `InferenceError` for contradictions.
    """
def _infer_shapes(
    bytes: bytes, check_type: bool, strict_mode: bool, data_prop: bool, /
) -> bytes:
    """Infers like `infer_shapes`, but accepts operators of domains that the model does not import,
    whose outputs stay untyped.
    """
def _infer_shapes_path(
    model_path: str,
    output_path: str,
    check_type: bool,
    strict_mode: bool,
    data_prop: bool,
    /,
) -> None:
    """Infers like `infer_shapes_path`, but accepts operators of domains that the model does not
    import, whose outputs stay untyped.
    """

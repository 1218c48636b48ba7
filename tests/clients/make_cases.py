"""Writes the node cases of the onnx package whose inputs and outputs are tensors: models, inputs, outputs. Beside them, a model of one Relu.

python make_cases.py DIRECTORY
"""

import pathlib
import sys
import warnings

import numpy
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases


def main(directory: pathlib.Path) -> None:
    warnings.filterwarnings("ignore")
    count = 0
    for case in collect_testcases(None):
        sets = case.data_sets or []
        values = [value for parts in sets for part in parts for value in part]
        if case.model is None or not sets or not all(isinstance(value, numpy.ndarray) for value in values):
            continue
        data = directory / case.name / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        (directory / case.name / "model.onnx").write_bytes(case.model.SerializeToString())
        ports = (case.model.graph.input, case.model.graph.output)
        for kind, names, tensors in zip(("input", "output"), ports, sets[0]):
            for index, (port, tensor) in enumerate(zip(names, tensors)):
                message = numpy_helper.from_array(tensor, port.name)
                (data / f"{kind}_{index}.pb").write_bytes(message.SerializeToString())
        count += 1
    relu = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(relu, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (directory.parent / "relu.onnx").write_bytes(model.SerializeToString())
    print(f"{count} cases")


main(pathlib.Path(sys.argv[1]))

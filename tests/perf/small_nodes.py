"""Make a model of many nodes that do next to nothing, and its .case file: what a runtime costs per node.

    python small_nodes.py COUNT MODEL CASE

Every value has four elements. All are read, most of them twice, and no two nodes compute the same.
"""

import pathlib
import sys

import onnx
from onnx import TensorProto, helper

# By operator, how many inputs. In this order values stay small.
KINDS = [("Add", 2), ("Max", 2), ("HardSigmoid", 1), ("Sub", 2), ("Min", 2), ("Neg", 1)]


def main(count, model, case):
    nodes = [node(index) for index in range(2, count + 2)]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("v0", "v1", f"v{count + 1}")]
    graph = helper.make_graph(nodes, "small_nodes", ports[:2], ports[2:])
    model.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), model)
    case.write_text("v0 f32 4 rand\nv1 f32 4 rand\n")


def node(index):
    kind, inputs = KINDS[index % len(KINDS)]
    # A node of one input leaves the last value to those that follow.
    sources = [f"v{index - 1}", f"v{index - 2}"] if inputs == 2 else [f"v{index - 2}"]
    return helper.make_node(kind, sources, [f"v{index}"])


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(pathlib.Path, sys.argv[2:4]))

"""Make one of the onnx wheel's light networks with random weights, and its .case file.

    python light_networks.py NAME MODEL CASE

The weights are those of tests/agree/light.py. They are constants here: IR 4, and none of them is an input.
"""

import pathlib
import sys

import onnx

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "agree"))
import light


def main(name, path, case):
    path.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first, so that a stopped run leaves no half file after.
    partial = path.with_suffix(".partial")
    fed, data, _ = light.make(name, partial)
    model = onnx.load(partial)
    light.keep(model.graph.input, lambda info: info.name == fed)
    model.ir_version = 4
    for node in model.graph.node:
        if node.op_type == "Softmax" and not node.attribute:
            # The default of this version. The reference evaluator takes that of later ones.
            node.attribute.append(onnx.helper.make_attribute("axis", 1))
    onnx.save(model, partial)
    partial.rename(path)
    case.write_text(f"{fed} f32 {','.join(map(str, data.shape))} rand\n")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], *map(pathlib.Path, sys.argv[2:4]))

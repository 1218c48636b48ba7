"""Save a model as ONNX Runtime runs it, with the operators that it adds to the standard.

    python optimized.py MODEL OUT.onnx

The level is ORT_ENABLE_EXTENDED: what comes after that is made for the layout of one machine. Fails
if nothing of what ONNX Runtime adds is in the result.
"""

import pathlib
import sys

import onnx
import onnxruntime as ort


def main(model, out):
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = out
    # Apart, because a message of more than 2 GB cannot be written.
    external = "session.optimized_model_external_initializers_"
    options.add_session_config_entry(external + "file_name", pathlib.Path(out).stem + ".data")
    options.add_session_config_entry(external + "min_size_in_bytes", "1024")
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(out, load_external_data=False).graph.node
    added = sorted({node.op_type for node in nodes if node.domain == "com.microsoft"})
    if not added:
        sys.exit(f"{model}: ONNX Runtime put none of its operators into it")
    print(", ".join(added))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])

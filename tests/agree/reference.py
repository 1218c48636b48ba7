"""Store what ONNX Runtime gives for a model: the reference of `cargo xtask agree`.

    python reference.py MODEL OUT.npz NAME=FILE.npy...

Fails if an output hardly varies: agreeing with a constant proves nothing.
"""

import sys
import zipfile

import numpy as np
import onnxruntime as ort


def main(model, out, pairs):
    named = (pair.rpartition("=") for pair in pairs)
    outputs = run(model, {name: np.load(path) for name, _, path in named})
    check_spread(outputs)
    write_npz(out, outputs)


def run(model, inputs):
    return runner(model)(inputs)


def runner(model):
    """A function from named inputs to named outputs."""
    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs)))


def check_spread(outputs):
    for name, array in outputs.items():
        spread, largest = float(np.std(array)), float(np.abs(array).max())
        if not (np.isfinite(largest) and spread > 0.01 * largest):
            sys.exit(f"{name}: standard deviation {spread:.3g} with magnitudes up to {largest:.3g}")


def write_npz(path, arrays):
    """Like np.savez, which cannot write an array named `file`."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

"""Make the inputs that a .case file describes, as .npy files: the same bytes on every machine.

    python case_inputs.py CASE OUT

prints one NAME=FILE line per input. A .case file has one line per input:

    NAME f32|f64|i32|i64|bool D0,D1,..|- rand|arange|randint:K|const:V

`rand` is in [-1, 1), `randint:K` in [0, K), `arange` counts along the last dimension; `-` is a scalar.
"""

import pathlib
import sys

import numpy as np

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "bool": np.bool_}


def main(case, out):
    out.mkdir(parents=True, exist_ok=True)
    for position, (name, values) in enumerate(read_case(case).items()):
        # Names of inputs may hold characters that names of files may not.
        path = out / f"{position}.npy"
        np.save(path, values)
        print(f"{name}={path}")


def read_case(case):
    """The inputs by name."""
    inputs = {}
    lines = [line.split() for line in case.read_text().splitlines()]
    lines = [line for line in lines if line and not line[0].startswith("#")]
    for position, (name, dtype, dims, how) in enumerate(lines):
        shape = () if dims == "-" else tuple(int(dim) for dim in dims.split(","))
        inputs[name] = fill(shape, how, position).astype(DTYPES[dtype]).reshape(shape)
    return inputs


def fill(shape, how, position):
    count = int(np.prod(shape))
    how, _, argument = how.partition(":")
    if how == "const":
        return np.full(count, float(argument))
    if how == "arange":
        return np.arange(count) % shape[-1]
    if how == "randint":
        return (scrambled(count, position) >> np.uint64(4)) % np.uint64(int(argument))
    if how == "rand":
        return scrambled(count, position) / 2.0**31 - 1.0
    raise SystemExit(f"unknown fill: {how}")


def scrambled(count, position):
    """32-bit numbers that look random, from the element's index and the input's position."""
    index = np.arange(count, dtype=np.uint64)
    low = np.uint64(0xFFFF_FFFF)
    first = (index + np.uint64(7919 * position)) * np.uint64(2654435761) & low
    second = (index * np.uint64(40503) & low) >> np.uint64(3)
    return first ^ second


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))

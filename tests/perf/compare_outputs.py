"""Say whether two runtimes gave the same outputs.

    python compare_outputs.py REFERENCE.npz OURS.npz

Floats may differ by 1e-4 of the output's largest magnitude, everything else not at all. Prints one
line of JSON: `worst` is the largest difference seen, as a part of that magnitude; `problems` is empty
when the outputs agree.
"""

import json
import sys

import numpy as np

TOLERANCE = 1e-4


def main(reference, ours):
    worst, problems = 0.0, []
    with np.load(reference) as expected, np.load(ours) as got:
        if not expected.files:
            problems.append("the reference wrote no output to compare with")
        for name in expected.files:
            if name not in got.files:
                problems.append(f"{name}: missing")
                continue
            difference, problem = compare(expected[name], got[name])
            worst = max(worst, difference)
            if problem:
                problems.append(f"{name}: {problem}")
    print(json.dumps({"worst": worst, "problems": problems}))


def compare(expected, got):
    if expected.shape != got.shape:
        return 0.0, f"shape {list(got.shape)} instead of {list(expected.shape)}"
    if expected.dtype != got.dtype:
        return 0.0, f"type {got.dtype} instead of {expected.dtype}"
    if expected.dtype.kind != "f":
        different = int(np.count_nonzero(expected != got))
        return 0.0, f"{different} of {expected.size} elements differ" if different else None
    expected, got = expected.astype(np.float64), got.astype(np.float64)
    ordinary = np.isfinite(expected)
    if not np.array_equal(expected[~ordinary], got[~ordinary], equal_nan=True):
        return 0.0, "infinities or NaN in other places"
    if not np.isfinite(got[ordinary]).all():
        return 0.0, "infinities or NaN in other places"
    if not ordinary.any():
        return 0.0, None
    distance = float(np.abs(expected - got)[ordinary].max())
    scale = float(np.abs(expected[ordinary]).max())
    relative = distance / scale if scale else distance
    if distance <= TOLERANCE * scale:
        return relative, None
    return relative, f"off by {relative:.2e} of the largest magnitude, {scale:.4g}"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])

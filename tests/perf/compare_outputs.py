"""Say whether two runtimes gave the same outputs, and which is nearer to the truth.

    python compare_outputs.py REFERENCE.npz OURS.npz [--float64 EXACT.npz] [--fast FAST.npz]

Floats may differ by 1e-4 of the output's largest magnitude, everything else not at all. With the outputs of the same model in
double precision, our largest error may be twice the reference's, or 1e-6 of that magnitude. Outputs of a run with less
precision are compared with these (without them, with the reference): by the square root of the sum of squares, at most 1e-2,
and by the place of the largest element of each row of the first output, which must not move.

Prints one line of JSON: `worst` is the largest difference seen, as a part of the largest magnitude; `float64` the largest
errors of both; `fast` the relative error, and how many rows have their largest element elsewhere; `blank` names outputs of
nothing but zeros, whose agreement proves little; `problems` is empty when the outputs agree, `inaccurate` when errors against
double precision are as small as they should be.
"""

import argparse
import json

import numpy as np

TOLERANCE = 1e-4
TIMES_REFERENCE, SMALL_ERROR = 2.0, 1e-6
FAST_TOLERANCE = 1e-2
# Elements that single precision cannot tell apart may change places.
TIE = 1e-6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reference")
    parser.add_argument("ours")
    parser.add_argument("--float64")
    parser.add_argument("--fast")
    args = parser.parse_args()
    reference, ours = load(args.reference), load(args.ours)
    exact = load(args.float64) if args.float64 else None
    worst, problems = agreement(reference, ours)
    blank = [name for name in floats(reference) if reference[name].size and not reference[name].any()]
    answer = {"worst": worst, "float64": None, "fast": None, "blank": blank}
    answer |= {"problems": problems, "inaccurate": []}
    if exact is not None and not problems:
        errors = {"reference": largest_error(exact, reference), "ours": largest_error(exact, ours)}
        answer["float64"] = errors
        if errors["ours"] > max(TIMES_REFERENCE * errors["reference"], SMALL_ERROR):
            answer["inaccurate"].append(
                f"off the result in float64 by {errors['ours']:.2e}, the reference by {errors['reference']:.2e}"
            )
    if args.fast:
        fast = load(args.fast)
        found = differences_of_form(reference, fast)
        problems += found
        if not found:
            answer["fast"], found = judge_fast(reference if exact is None else exact, fast)
            answer["inaccurate"] += found
    print(json.dumps(answer))


def load(path):
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def agreement(reference, ours):
    """The largest difference, and what is wrong."""
    worst, problems = 0.0, []
    if not reference:
        problems.append("the reference wrote no output to compare with")
    for name, expected in reference.items():
        if name not in ours:
            problems.append(f"{name}: missing")
            continue
        difference, problem = compare(expected, ours[name])
        worst = max(worst, difference)
        if problem:
            problems.append(f"{name}: {problem}")
    return worst, problems


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


def largest_error(exact, outputs):
    """Of all outputs of floats, as a part of the output's largest magnitude."""
    return max((relative_error(exact[name], outputs[name], np.max) for name in floats(exact)), default=0.0)


def floats(arrays):
    return [name for name, array in arrays.items() if array.dtype.kind == "f"]


def relative_error(exact, got, size):
    """The size of the difference as a part of that of the exact array; elements that are not numbers do not count."""
    exact, got = exact.astype(np.float64), got.astype(np.float64)
    ordinary = np.isfinite(exact) & np.isfinite(got)
    if not ordinary.any():
        return 0.0
    scale = float(size(np.abs(exact[ordinary])))
    distance = float(size(np.abs(exact - got)[ordinary]))
    return distance / scale if scale else distance


def differences_of_form(reference, fast):
    problems = []
    for name, array in reference.items():
        if name not in fast:
            problems.append(f"fast: {name}: missing")
        elif fast[name].shape != array.shape:
            problems.append(f"fast: {name}: shape {list(fast[name].shape)} instead of {list(array.shape)}")
        elif array.dtype.kind == "f" and not np.array_equal(np.isfinite(array), np.isfinite(fast[name])):
            problems.append(f"fast: {name}: infinities or NaN in other places")
    return problems


def judge_fast(exact, fast):
    """The figures, and what is wrong with them."""
    problems = []
    error = max((relative_error(exact[name], fast[name], np.linalg.norm) for name in floats(exact)), default=0.0)
    if error > FAST_TOLERANCE:
        problems.append(f"fast: relative error {error:.2e}, {FAST_TOLERANCE} may be")
    first = next(iter(exact))
    moved, rows = moved_rows(exact[first], fast[first])
    if moved:
        problems.append(f"fast: {moved} of {rows} rows of {first} have their largest element elsewhere")
    return {"error": error, "moved": moved, "rows": rows}, problems


def moved_rows(exact, fast):
    """How many rows have their largest element elsewhere, and how many there are."""
    if not exact.ndim or not exact.size:
        return 0, 0
    there = np.take_along_axis(exact, fast.argmax(axis=-1, keepdims=True), axis=-1)
    below = exact.max(axis=-1, keepdims=True) - there
    return int(np.count_nonzero(below > TIE * np.abs(exact).max())), int(there.size)


if __name__ == "__main__":
    main()

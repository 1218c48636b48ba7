"""Say whether outputs agree with the stored ones, by the rule of tests/perf/compare_outputs.py.

    python compare.py EXPECTED.npz OURS.npz [LABELS.txt]

With labels every output holds scores of classes: then the best class of every row must also be the
same one. Prints a line of JSON: outputs (how many), worst, problems, labels (the best of each row).
"""

import json
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parent.parent / "perf"))
from compare_outputs import compare  # noqa: E402


def main(expected, ours, labels):
    worst, problems, best = 0.0, [], []
    labels = pathlib.Path(labels).read_text().splitlines() if labels else None
    with np.load(expected) as expected, np.load(ours) as got:
        if set(got.files) != set(expected.files):
            problems.append(f"outputs {got.files} instead of {expected.files}")
        for name in set(got.files) & set(expected.files):
            difference, problem = compare(expected[name], got[name])
            worst = max(worst, difference)
            if problem:
                problems.append(f"{name}: {problem}")
            if labels and expected[name].shape == got[name].shape:
                rows = zip(best_labels(expected[name], labels), best_labels(got[name], labels))
                for row, (wanted, label) in enumerate(rows):
                    best.append(wanted)
                    if label != wanted:
                        problems.append(f"{name}, row {row}: {label} instead of {wanted}")
        answer = {"outputs": len(expected.files), "worst": worst, "problems": problems, "labels": best}
    print(json.dumps(answer))


def best_labels(scores, labels):
    return [labels[index] for index in scores.argmax(axis=-1)]


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else None)

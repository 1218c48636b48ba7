"""Writes the images for training with Sardonyx, or says how many digits a model gets right.

`data.py DIRECTORY` writes `train.npz` and `test.npz` there: arrays `image` and `label`, as the
inputs of a training step are called. They are the parts that `train.py` trains on and tests with.
`data.py DIRECTORY --model FILE` runs a model on the test part.
"""

import argparse
from pathlib import Path

import numpy as np
from onnx.reference import ReferenceEvaluator

from train import load_data

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("directory", type=Path)
parser.add_argument("--model", help="a model to test")
options = parser.parse_args()

if options.model:
    test = np.load(options.directory / "test.npz")
    [probabilities] = ReferenceEvaluator(options.model).run(None, {"image": test["image"]})
    right = (probabilities.argmax(axis=1) == test["label"]).sum()
    print(f"{right} of {len(test['label'])} right ({right / len(test['label']):.1%})")
else:
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, (images, labels, _) in zip(("train", "validation", "test"), load_data()):
        np.savez(options.directory / f"{name}.npz", image=images, label=labels.astype(np.int64))

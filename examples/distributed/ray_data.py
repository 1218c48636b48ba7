"""A data set that Ray Data scores: each actor has a session, which is made from its path.

    python ray_data.py ../digits/digits.onnx

The sessions of a machine share the pages of the file, so its weights are in memory once.
"""

import sys

import numpy as np
import ray
import sardonyx


class Scorer:
    """Replaces a batch of images by their most probable classes."""

    def __init__(self, session):
        # It came as a path and options, and has opened the file here.
        self.session = session

    def __call__(self, batch):
        return {"digit": self.session(batch["data"]).argmax(axis=1)}


def scored(model, images, actors=2):
    """The most probable class of each image, in order."""
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    session = sardonyx.Session(model, threads=1)
    digits = ray.data.from_numpy(np.array_split(images, 4 * actors)).map_batches(
        Scorer,
        fn_constructor_args=(session,),
        compute=ray.data.ActorPoolStrategy(size=actors),
        batch_size=100,
    )
    return np.array([row["digit"] for row in digits.take_all()])


def main():
    images = np.random.default_rng(3).random((1000, 1, 8, 8), np.float32)
    print(np.bincount(scored(sys.argv[1], images)))


if __name__ == "__main__":
    ray.init()
    main()

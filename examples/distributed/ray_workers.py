"""A model on several devices, each an actor of Ray, on whatever machines Ray puts them.

    python ray_workers.py block.onnx
"""

import queue
import sys

import numpy as np
import ray
from sardonyx.distributed import Worker


@ray.remote(concurrency_groups={"mailbox": 1})
class Device:
    """A worker of a model. It is its own transport: the others call `put`."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size
        self.mailbox = queue.SimpleQueue()

    @ray.method(concurrency_group="mailbox")
    def put(self, source, data):
        self.mailbox.put((source, data))

    def send(self, to, data):
        # Raises an exception if the actor has died.
        ray.get(self.devices[to].put.remote(self.rank, data))

    def recv(self, timeout):
        try:
            return self.mailbox.get(timeout=timeout)
        except queue.Empty:
            return None

    def start(self, devices, model, **options):
        self.devices = devices
        self.worker = Worker(model, transport=self, threads=1, **options)

    def run(self, feeds, times=1):
        for _ in range(times):
            outputs = self.worker.run(feeds)
        return outputs

    def serve(self):
        self.worker.serve()

    def close(self):
        self.worker.close()


def started(model, size, **options):
    """Actors that run a model: the first one takes the inputs."""
    devices = [Device.remote(rank, size) for rank in range(size)]
    ray.get([device.start.remote(devices, model, **options) for device in devices])
    return devices


def main():
    first, *others = started(sys.argv[1], 4)
    serving = [device.serve.remote() for device in others]
    x = np.random.default_rng(2).normal(size=(2, 4, 64)).astype(np.float32)
    print(ray.get(first.run.remote({"x": x}))["y"].shape)
    ray.get([first.close.remote(), *serving])


if __name__ == "__main__":
    ray.init()
    main()

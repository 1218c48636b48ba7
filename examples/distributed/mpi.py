"""A model on the devices of a job of MPI, such as four processes of one machine or of several.

    mpiexec -n 4 python -m mpi4py mpi.py block.onnx

`-m mpi4py` ends the job if one of its processes ends with an exception.
"""

import sys
import time

import numpy as np
from mpi4py import MPI
from sardonyx.distributed import Worker


class Messages:
    """Messages between the processes of a communicator, for a worker."""

    def __init__(self, comm=MPI.COMM_WORLD):
        # One of its own, so that no other messages come between.
        self.comm = comm.Dup()
        self.rank, self.size = comm.rank, comm.size

    def send(self, to, data):
        self.comm.send(data, to)

    def recv(self, timeout):
        status, end = MPI.Status(), time.monotonic() + timeout
        while not (message := self.comm.improbe(status=status)):
            if time.monotonic() > end:
                return None
            time.sleep(0.0002)
        return status.source, message.recv()


def main():
    with Worker(sys.argv[1], transport=Messages(), threads=1) as worker:
        if worker.rank > 0:
            return worker.serve()
        random = np.random.default_rng(2)
        for length in 4, 9:
            x = random.normal(size=(2, length, 64)).astype(np.float32)
            y = worker.run({"x": x})["y"]
            print(length, worker.devices, worker.size, y.tobytes().hex())


if __name__ == "__main__":
    main()

"""Runs one model on several devices, in one process or in several processes and machines.

A model can carry annotations that say on which devices its nodes run, and how tensors are sharded;
:func:`sardonyx.shard`, the command ``sardonyx shard`` and other tools write them. :class:`Worker` runs the devices::

    # Each device is a thread of this process.
    y = Worker("sharded.onnx").run({"x": x})["y"]

    # This process is one of several.
    with Worker("sharded.onnx", transport=transport) as worker:
        if worker.rank == 0:
            y = worker.run({"x": x})["y"]
        else:
            worker.serve()

Other tools split a model into one model for each rank, whose nodes call collectives. :class:`Rank` runs the model of this
process, in step with the ranks of the other processes::

    with Rank(f"rank{transport.rank}.onnx", transport) as rank:
        y = rank.run({"x": x})["y"]

A transport is any object like :class:`Transport`, for example over MPI, actors, queues or sockets.
"""

import typing as _t

from sardonyx._core.session import Rank, Worker
from sardonyx._values import OutputPart

__all__ = ["OutputPart", "Rank", "Transport", "Worker"]


class Transport(_t.Protocol):
    """Connection that carries messages between workers or ranks. Implementations need not derive from it.

    Messages may arrive in any order, and more than once; messages to a closed worker may be lost. ``send`` and ``recv``
    are each called from one thread of their own, from the construction of the worker until it is closed.
    """

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""

    @property
    def size(self) -> int:
        """Number of workers."""

    def send(self, to: int, data: bytes, /) -> object:
        """Sends a message to another worker. May block until it is received. An exception means that the other worker is lost."""

    def recv(self, timeout: float, /) -> tuple[int, bytes] | None:
        """Waits up to `timeout` seconds for a message, and returns the number of its sender and its bytes, or None.

        An exception means that this worker cannot go on.
        """

"""Several programs, or several machines, that run one model together.

A model can say on which devices its nodes run, and in which parts: the command ``sardonyx shard``
writes such annotations, and other tools do. :class:`Worker` runs the devices::

    # Each device is a thread of this process.
    y = Worker("sharded.onnx").run({"x": x})["y"]

    # This process is one of several.
    with Worker("sharded.onnx", transport=transport) as worker:
        if worker.rank == 0:
            y = worker.run({"x": x})["y"]
        else:
            worker.serve()

Models that tools have divided already, one for each rank, call collectives. :class:`Rank` runs the one of this process,
together with those of the others::

    with Rank(f"rank{transport.rank}.onnx", transport) as rank:
        y = rank.run({"x": x})["y"]

A transport is any object like :class:`Transport`: over MPI, actors, queues or sockets.
"""

from typing import Protocol

from sardonyx._core.session import Rank, Worker
from sardonyx._values import OutputPart

__all__ = ["OutputPart", "Rank", "Transport", "Worker"]


class Transport(Protocol):
    """What carries messages between workers, or ranks. Nothing needs to derive from it.

    Messages may arrive in any order, and more than once; those for a worker that was closed may be lost. ``send`` and ``recv``
    are called by two threads of their own, one each, from the time when the worker is made until it is closed.
    """

    @property
    def rank(self) -> int:
        """The number of this worker, from 0."""

    @property
    def size(self) -> int:
        """How many workers there are."""

    def send(self, to: int, data: bytes, /) -> object:
        """Sends a message to another worker. May wait until it is received. An exception means that the other worker is lost."""

    def recv(self, timeout: float, /) -> tuple[int, bytes] | None:
        """Waits up to `timeout` seconds for a message: (number of the sender, bytes), or None.

        An exception means that this worker cannot go on.
        """

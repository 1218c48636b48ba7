"""Times of the steps of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Number of steps that a profile shows as text and in notebooks.
SHOWN = 20


class ProfiledStep(NamedTuple):
    """A step of a session and its time."""

    node: str
    """Name of the node."""
    op: str
    """Operator of the node."""
    kernel: str
    """Kernel that computes the step."""
    us: float
    """Time in a run, in microseconds: the median over all runs. A step in a loop counts all its iterations."""


class Profile:
    """Times of the steps of a session, as ``Session.profile`` returns them.

    Times are medians over the measured runs, in microseconds. ``print`` shows the slowest steps as text, notebooks as tables.
    """

    runs: int
    """Number of measured runs."""
    threads: int
    """Number of threads that a run uses."""
    run_us: float
    """Time of a run, in microseconds."""
    steps: list[ProfiledStep]
    """The steps in the order of the session."""

    def __init__(
        self,
        steps: Sequence[tuple[str, str, str]],
        runs: Sequence[tuple[int, int, Sequence[tuple[int, int, int]]]],
        threads: int,
    ) -> None:
        # Takes longer to import than most of this package.
        import statistics

        times: list[list[int]] = [[] for _ in steps]
        for _, _, events in runs:
            of_run = [0] * len(steps)
            for step, _, took in events:
                of_run[step] += took
            for all_runs, took in zip(times, of_run, strict=True):
                all_runs.append(took)
        self.runs = len(runs)
        self.threads = threads
        self.run_us = float(statistics.median(took for _, took, _ in runs)) if runs else 0.0
        self.steps = [
            ProfiledStep(*step, float(statistics.median(took)) if took else 0.0)
            for step, took in zip(steps, times, strict=True)
        ]

    def operators(self) -> dict[str, float]:
        """Sums the times of the steps of each operator, in microseconds, slowest operator first."""
        sums: dict[str, float] = {}
        for step in self.steps:
            sums[step.op] = sums.get(step.op, 0.0) + step.us
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def slowest(self, count: int = SHOWN) -> list[ProfiledStep]:
        """Returns up to ``count`` steps, slowest first."""
        return sorted(self.steps, key=lambda step: -step.us)[: max(count, 0)]

    def _repr_html_(self) -> str:
        from sardonyx import _notebook

        return _notebook.profile(self)

    def __repr__(self) -> str:
        return f"Profile({self.runs} runs, {len(self.steps)} steps, {self.run_us:g} us)"

    def __str__(self) -> str:
        """Lists the slowest steps, one a line."""
        rows = [(f"{step.us:.0f}", step.op, step.node, step.kernel) for step in self.slowest()]
        rows.insert(0, ("us", "operator", "node", "kernel"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            f"{us:>{widths[0]}}  {op:<{widths[1]}}  {node:<{widths[2]}}  {kernel}"
            for us, op, node, kernel in rows
        ]
        return "\n".join([repr(self), *(line.rstrip() for line in lines)])

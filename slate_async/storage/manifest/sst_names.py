"""`SstNames`: which SSTs a state names, to be compared with another state's.

States that follow one another share most of their runs, the very same objects; those are not looked into.
"""

from __future__ import annotations

from slate_async.storage.manifest.state import ManifestState, SortedRun


class SstNames:
    """The object ids of the SSTs of ``state``."""

    __slots__ = ("_l0", "_runs")

    def __init__(self, state: ManifestState) -> None:
        self._l0 = frozenset(sst.object_id for sst in state.l0)
        self._runs = state.runs

    def within(self, other: SstNames) -> bool:
        """Whether ``other`` has all of them."""
        missing = (self._l0 | self._besides(other)) - other._l0
        return not missing or missing <= other._besides(self) or missing <= _names(other._runs)

    def _besides(self, other: SstNames) -> frozenset[bytes]:
        """Those of runs that ``other`` does not share."""
        if self._runs is other._runs:
            return frozenset()
        shared = {id(run) for run in other._runs}
        return _names(tuple(run for run in self._runs if id(run) not in shared))


def _names(runs: tuple[SortedRun, ...]) -> frozenset[bytes]:
    return frozenset(sst.object_id for run in runs for sst in run.ssts)

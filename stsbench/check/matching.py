"""Which old score each new score is compared with: by encoder, task, split, protocol and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from stsbench.check.lock import CheckSide, LockedCell, group_seeds
from stsbench.check.verdicts import CellPool
from stsbench.core.errors import DataError
from stsbench.core.provenance import is_same_encoder


def match_encoders(new: CheckSide, old: CheckSide) -> dict[str, str]:
    """Find which encoder of the old scores each encoder of the new scores is to be compared with.

    It is the encoder of the same name. If the two sides have one encoder each, of different names,
    these are compared with each other. But if a file of a side is unreadable, it may be of the
    right name, and no other name is taken in its place.

    Args:
        new: The new scores (``cells``) and unreadable files (``problems``).
        old: The old scores and unreadable files.

    Returns:
        New name -> old name; empty if there are none and a file is unreadable.

    Raises:
        DataError: A side has no cells, or no encoder is on both sides, and all files are valid.
    """
    new_names = list(dict.fromkeys(cell.encoder for cell in new.cells))
    old_names = list(dict.fromkeys(cell.encoder for cell in old.cells))
    common_names = {name: name for name in new_names if name in old_names}
    if common_names or new.problems or old.problems:
        return common_names
    if not new_names or not old_names:
        empty_side = "old" if new_names else "new"
        raise DataError(f"the {empty_side} side of the check holds no results")
    if len(new_names) == len(old_names) == 1:
        return {new_names[0]: old_names[0]}
    raise DataError(
        f"no encoder is in both: new {', '.join(new_names[:3])}; old {', '.join(old_names[:3])}",
        hint="choose one of each with `encoder` and `against_encoder`",
    )


def match_cells(
    new: Sequence[LockedCell],
    old: Sequence[LockedCell],
    old_name_by_encoder: Mapping[str, str],
    *,
    pools_seeds: bool,
) -> Iterator[CellPool]:
    """Yield new scores together with the old scores to compare them with.

    A cell is one score: of an encoder on a task, with its protocol (the way of scoring) and seeds.
    For each encoder and task, cells with the same conditions are matched first. Of the rest, cells
    with different conditions are matched too, so that the difference can be reported. Old cells of
    encoders that are not on the new side are left out.

    Args:
        new: The new cells.
        old: The old cells.
        old_name_by_encoder: Name of an encoder on the new side -> its name on the old side; absent
            if the old side does not have it.
        pools_seeds: Whether the scores of an encoder that was trained again are compared by their
            means over the training seeds.

    Yields:
        Pools: new cells and old cells that belong together. One of the two lists may be empty.
    """
    for encoder in dict.fromkeys(cell.encoder for cell in new):
        new_cells = [cell for cell in new if cell.encoder == encoder]
        old_cells = [cell for cell in old if cell.encoder == old_name_by_encoder.get(encoder)]
        for task in dict.fromkeys(cell.task for cell in (*new_cells, *old_cells)):
            yield from _match_cells_of_task(
                [cell for cell in new_cells if cell.task == task],
                [cell for cell in old_cells if cell.task == task],
                pools_seeds=pools_seeds,
            )


def _match_cells_of_task(
    new_cells: Sequence[LockedCell], old_cells: Sequence[LockedCell], *, pools_seeds: bool
) -> Iterator[CellPool]:
    """Yield the scores of one encoder on one task, new ones with the old ones to compare them with.

    A cell is one score, with its conditions: the split of the data, the protocol (the way of
    scoring), the training seed and the evaluation seed. If one side has no cells, those of the
    other are yielded alone, the training seeds of one split and protocol together. Otherwise cells
    are matched in this order:

    1. a new and an old cell of the same conditions, unless rule 2 is to take them;
    2. if ``pools_seeds``, all new and all old seeds of an encoder that was trained again;
    3. a new cell with an old cell of the same split and protocol, else with any old cell;
    4. old cells that are left, alone.

    Args:
        new_cells: The new cells of one encoder on one task.
        old_cells: The old cells of the encoder on the task.
        pools_seeds: Whether scores of an encoder that was trained again are compared by their means
            over the training seeds.
    """
    # Conditions -> the cell that has them; matched cells are removed.
    unmatched_new = {cell.conditions: cell for cell in new_cells}
    unmatched_old = {cell.conditions: cell for cell in old_cells}
    if not (new_cells and old_cells):
        # There is nothing to compare with: the seeds of a trained encoder get one verdict.
        for cells_of_seeds in group_seeds((*new_cells, *old_cells)).values():
            for cell in cells_of_seeds:
                unmatched_new.pop(cell.conditions, None)
                unmatched_old.pop(cell.conditions, None)
            sides = (cells_of_seeds, []) if new_cells else ([], cells_of_seeds)
            yield CellPool(*sides, is_by_seed=len(cells_of_seeds) > 1)
    for conditions in [key for key in unmatched_new if key in unmatched_old]:
        new_cell = unmatched_new[conditions]
        old_cell = unmatched_old[conditions]
        # Trained again: it has a training seed, and other weights or settings.
        if not (pools_seeds and _was_trained_again(new_cell, old_cell)):
            del unmatched_new[conditions], unmatched_old[conditions]
            yield CellPool([new_cell], [old_cell])
    if pools_seeds:
        # With all old seeds, also those that rule 1 has matched already.
        for pool in _pool_seeds(unmatched_new.values(), old_cells):
            for cell in pool.new:
                del unmatched_new[cell.conditions]
            for cell in pool.old:
                unmatched_old.pop(cell.conditions, None)
            yield pool
    for (split, protocol, *_), new_cell in unmatched_new.items():
        # Conditions that differ in seeds only come first.
        candidates = [
            conditions for conditions in unmatched_old if conditions[:2] == (split, protocol)
        ]
        candidates += unmatched_old
        # None if no old cell is left, else one.
        counterparts = [unmatched_old.pop(conditions) for conditions in candidates[:1]]
        yield CellPool([new_cell], counterparts)
    for old_cell in unmatched_old.values():
        yield CellPool([], [old_cell])


def _was_trained_again(new: LockedCell, old: LockedCell) -> bool:
    """Return whether two cells of one training seed are of different encoders."""
    return new.train_seed is not None and not is_same_encoder(new.fingerprint, old.fingerprint)


def _pool_seeds(new: Iterable[LockedCell], old: Iterable[LockedCell]) -> list[CellPool]:
    """Return pools of scores that differ in nothing but the training seed, for both sides.

    A cell is one score of an encoder on a task. Cells without a training seed are ignored.

    Args:
        new: The new cells of one encoder on one task.
        old: The old cells of the encoder on the task.

    Returns:
        A pool of new and old cells for each split, protocol and evaluation seed that has both.
    """
    # group_seeds returns cells by encoder, task, split, protocol and evaluation seed. The encoder
    # is left out here, as it may have another name on the old side.
    old_by_conditions = {
        tuple(conditions): cells for (_, *conditions), cells in group_seeds(old).items()
    }
    pools = []
    for (_, *new_conditions), new_cells in group_seeds(new).items():
        conditions = tuple(new_conditions)
        if conditions in old_by_conditions:
            pools.append(CellPool(new_cells, old_by_conditions[conditions], is_by_seed=True))
    return pools

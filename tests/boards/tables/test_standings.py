"""How rows stand to each other: where a row without a rank is shown."""

from stsbench.boards.tables.table import Group, Row, Table, add_standings
from stsbench.significance.ranks import RowStanding


def test_a_row_without_a_standing_comes_last_in_its_group():
    first = Group(rows=[Row(label=label, cells={}) for label in "abc"])
    second = Group(rows=[Row(label=label, cells={}) for label in ("not ranked", "d")])
    ranks_by_row = {0: 1, 1: 2, 2: 3, 4: 4}
    table = add_standings(
        Table(name="board", title="Board", columns=[], groups=[first, second]),
        {
            row: RowStanding(rank, (rank, rank), "a", is_best=False, tasks=())
            for row, rank in ranks_by_row.items()
        },
    )
    assert [row.label for row in table.rows()] == ["a", "b", "c", "d", "not ranked"]

"""Cells of a rectangular grid."""

Cell = tuple[int, int]  # (row, column), from the top left


def neighbor(cell: Cell, direction: Cell) -> Cell:
    """The cell that is `direction` rows and columns away; it may lie outside of the grid."""
    return cell[0] + direction[0], cell[1] + direction[1]

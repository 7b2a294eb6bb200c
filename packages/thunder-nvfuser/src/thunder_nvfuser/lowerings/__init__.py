"""How nvFuser runs each operation that it runs."""

from __future__ import annotations

from thunder_nvfuser.lowerings import creation, indexing, matmuls, pointwise, random, reductions, shapes
from thunder_nvfuser.lowerings.decomposed import decomposed
from thunder_nvfuser.table import Row

_ITSELF: dict[str, Row] = {
    **pointwise.ROWS,
    **reductions.ROWS,
    **shapes.ROWS,
    **indexing.ROWS,
    **creation.ROWS,
    **matmuls.ROWS,
    **random.ROWS,
}

TABLE: dict[str, Row] = {**_ITSELF, **decomposed({**_ITSELF, **indexing.PARTS})}
"""By the operator's name in a trace."""

"""The instruction sets of this machine, and tests that run with each."""

import pytest
from speeds import full

from fpstore import _kernel

ISAS = _kernel.available_isas()
QUICK_ISAS = [ISAS[0], *map(full, ISAS[1:-1]), *ISAS[1:][-1:]]  # scalar and the best one


@pytest.fixture(params=QUICK_ISAS)
def isa(request):
    """Let the kernel use an instruction set, and return its name."""
    before = _kernel.isa()
    _kernel.select_isa(request.param)
    yield request.param
    _kernel.select_isa(before)

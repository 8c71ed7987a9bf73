"""The instruction sets of this machine, and tests that run with each."""

import pytest

from fpstore import _kernel

ISAS = _kernel.available_isas()


@pytest.fixture(params=ISAS)
def isa(request):
    """Let the kernel use an instruction set, and return its name."""
    before = _kernel.isa()
    _kernel.select_isa(request.param)
    yield request.param
    _kernel.select_isa(before)

# SPDX-License-Identifier: Apache-2.0
"""Seeds, time-outs, and the repetition of failed simulations with waves, for all blocks."""

import pytest
from dysharp.verif.lib.trial import Trial, time_limit

_SECONDS, _SECONDS_REGRESS = 600, 3600


@pytest.fixture
def trial(request):
    """Seeds and evidence of a test that simulates."""
    return Trial(request.node.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run tests that use `trial` with a time-out, and once more with waves when they fail."""
    trial = pyfuncitem.funcargs.get("trial")
    if trial is None:
        return (yield)
    seconds = _SECONDS_REGRESS if pyfuncitem.get_closest_marker("regress") else _SECONDS
    try:
        with time_limit(seconds):
            return (yield)
    except (Exception, pytest.fail.Exception):
        if pyfuncitem.get_closest_marker("xfail"):
            raise
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        lines = trial.examine(lambda: pyfuncitem.obj(**arguments), seconds)
        pyfuncitem.add_report_section("call", "to reproduce", "\n".join(lines))
        raise

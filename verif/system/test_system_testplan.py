# SPDX-License-Identifier: Apache-2.0
"""The test plan and the tests agree."""

from pathlib import Path

from dysharp.verif.lib.testplan import planned_tests, written_tests

FOLDER = Path(__file__).parent


def test_plan_names_all_tests_and_no_others() -> None:
    assert planned_tests(FOLDER, "system") == written_tests(FOLDER, "system")

"""Each of the faults has a test that is there."""

from tests.faults.table import FAULTS, faults_page


def test_each_fault_has_a_test() -> None:
    page = faults_page()
    assert len(FAULTS) == 25
    assert page.count("::test_") >= len(FAULTS)

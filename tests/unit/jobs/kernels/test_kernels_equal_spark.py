"""Every expression on the tested list, compared with Spark over edge values: values, types and the rows that raise."""

from tests.support.jobs.kernels.kernels_equal_spark import CASES


def test_case_files_name_each_expression_once() -> None:
    for case in CASES:
        assert len(set(case.exprs)) == len(case.exprs), case

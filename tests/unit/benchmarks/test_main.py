"""`python -m benchmarks`: benchmarks without Spark are reached by their names, and the help names them."""

import pytest

from benchmarks.__main__ import ALONE, main


def test_a_benchmark_without_spark_runs_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    main(["amplification", "--keys", "2000", "--epochs", "2"])
    said = capsys.readouterr().out
    assert said.startswith("2,000 keys, 2 epochs that each update 10%")
    assert "sorted runs per key at most" in said


@pytest.mark.parametrize("name", ALONE)
def test_each_benchmark_has_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: python -m benchmarks {name} " in capsys.readouterr().out


def test_the_help_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = "".join(capsys.readouterr().out.split())  # argparse breaks lines after hyphens
    assert all(name in said for name in ALONE)

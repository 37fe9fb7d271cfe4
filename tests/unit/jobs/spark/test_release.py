"""The exchange of releases that cannot name a partition, and the errors for what a release lacks."""

import pytest

from tussock.jobs.delta import delta_packages
from tussock.jobs.spark import release


def test_a_release_without_delta_lake_is_named_and_never_stops_the_parsing_of_dags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta_packages, "_installed_spark", lambda: "4.3")
    assert "delta-spark_4.2_2.13" in delta_packages.with_delta({})["spark.jars.packages"]
    with pytest.raises(delta_packages.NoDeltaReleaseError, match=r"by Spark 4\.3: .* engine = \"deltalake\""):
        delta_packages.require_delta_release()


def test_names_of_grouping_expressions_have_no_ids_before_spark_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "RELEASE", (4, 0))
    assert [release.column_name(n) for n in ("upper(item#12)", "a#1")] == ["upper(item)", "a#1"]

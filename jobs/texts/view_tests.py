"""The outcome of tests of views: as text, and as JUnit XML for CI systems."""

import textwrap
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from tussock.jobs.viewtests.pipeline_tests import Trials
from tussock.jobs.viewtests.trial import Trial, TrialVerdict


def trials_text(trials: Trials) -> str:
    """One line per test, the differences of failed ones, the views without a test, and a summary."""
    return "\n".join(_trial_lines(trials))


def trial_text(trial: Trial) -> str:
    """A test that did not pass: its place, and the reason."""
    return f"{trial.test.path}:{trial.test.place.line}\n{textwrap.indent(trial.text, '  ')}"


def junit_xml(trials: Trials) -> bytes:
    """The outcome as JUnit XML: one test suite per pipeline, one test case per test."""
    counts = {verdict: sum(t.verdict is verdict for t in trials.trials) for verdict in TrialVerdict}
    suite = ET.Element(
        "testsuite",
        name=f"tussock.{trials.pipeline}",
        tests=str(len(trials.trials)),
        failures=str(counts[TrialVerdict.FAILED]),
        errors=str(counts[TrialVerdict.ERROR]),
        skipped="0",
        time=f"{sum(t.seconds for t in trials.trials):.3f}",
    )
    for trial in trials.trials:
        test = trial.test
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"{trials.pipeline}.{test.view}",
            name=test.name,
            file=str(test.path),
            line=str(test.place.line),
            time=f"{trial.seconds:.3f}",
        )
        if trial.verdict is not TrialVerdict.PASSED:
            tag = "failure" if trial.verdict is TrialVerdict.FAILED else "error"
            first, _, _ = trial.text.partition("\n")
            ET.SubElement(case, tag, message=first.rstrip(":")).text = trial_text(trial)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _trial_lines(trials: Trials) -> Iterator[str]:
    width = max(len(t.test.view) for t in trials.trials)
    for trial in trials.trials:
        yield f"{trial.verdict:<6}  {trial.test.view:<{width}}  {trial.test.name}  ({trial.seconds:.2f} s)"
    for trial in trials.trials:
        if trial.verdict is not TrialVerdict.PASSED:
            yield f"\n{trial.verdict} {trial.test.view}: {trial.test.name}\n{trial_text(trial)}"
    if any(t.verdict is not TrialVerdict.PASSED for t in trials.trials):
        yield ""
    for path in trials.missing:
        yield f"not read, because it does not exist: {path}"
    if trials.untested:
        yield f"views without a test: {', '.join(trials.untested)}"
    counts = {verdict: sum(t.verdict is verdict for t in trials.trials) for verdict in TrialVerdict}
    parts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    yield f"{parts} in {sum(t.seconds for t in trials.trials):.2f} s"

"""Files of Debezium's envelopes, one per line: read as lines, without Spark if they are plain."""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.plain import PlainTexts
from tussock.jobs.sources.plain_values import NotPlain, TextForm
from tussock.jobs.sources.text_files import TextFiles


class PlainLines(PlainTexts):
    """Reads plain files as lines."""

    def is_plain_type(self, kind: str) -> bool:
        return kind == "string"

    def plain_options(self) -> Mapping[str, Collection[str]]:
        return {}

    def parse_columns(
        self, source: CreateSource, fields: Sequence[Field], block: bytes, wanted: Sequence[int], form: TextForm
    ) -> list[pa.Array]:
        """See PlainTexts. A blank line is a row for Spark, so a block with one is not plain."""
        lines = pc.list_flatten(pc.split_pattern(pa.array([block.removesuffix(b"\n")], pa.string()), "\n"))
        if b"\r" in block:
            lines = pc.replace_substring_regex(lines, "\r$", "")
        if pc.any(pc.equal(pc.binary_length(lines), 0)).as_py():
            raise NotPlain("a line is blank")
        return [lines for _ in wanted]


class EnvelopeFiles(TextFiles):
    """Files with one envelope per line."""

    engine = PlainLines()

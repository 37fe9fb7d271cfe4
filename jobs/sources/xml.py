"""XML files with one row per element, read by Spark."""

from typing import ClassVar

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.measures import measure_text
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.spark_files import SparkTexts

_ROW_TAG = "rowTag"
_XSD = "rowValidationXSDPath"


class XmlFiles(SparkTexts):
    """XML files, read by Spark. The option rowTag names the elements that are rows."""

    format: ClassVar[str] = "xml"
    options_class: ClassVar[str] = "catalyst.xml.XmlOptions"

    def check(self, source: CreateSource) -> None:
        super().check(source)
        option_names = {option.lower(): option for option in source.options}
        if _ROW_TAG.lower() not in option_names:
            raise MissingOptionError(
                source.name, _ROW_TAG, "the name of the elements that are rows, e.g. rowTag 'order'"
            )
        if (option := option_names.get(_XSD.lower())) is not None:
            reason = "the result would depend on a schema file outside the source, which may change"
            raise BadOptionError(source.name, option, source.options[option], reason)

    def measure(self, source: CreateSource, file: PinnedFile) -> FileRecords:
        """See FileSource."""
        return measure_text(file, source.options, f"<{_row_tag(source)}".encode())

    def sample(self, source: CreateSource, value: str) -> str:
        """See SparkTexts. Omits names that no element can have, as Spark does."""
        row = _row_tag(source)
        return (
            f"<{row}>{''.join(f'<{f.name}>{value}</{f.name}>' for f in source.fields if f.name.isidentifier())}</{row}>"
        )


def _row_tag(source: CreateSource) -> str:
    return next((tag for option, tag in source.options.items() if option.lower() == _ROW_TAG.lower()), "ROW")

"""XML files with one row per element, read by Spark."""

from collections.abc import Mapping
from typing import ClassVar
from xml.parsers import expat

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError
from tussock.jobs.sources.file_portions import FileRecords
from tussock.jobs.sources.measures import DAMAGED, measure_text, unpack_file
from tussock.jobs.sources.pins import PinnedFile
from tussock.jobs.sources.spark_files import SparkTexts

_ROW_TAG = "rowTag"
_XSD = "rowValidationXSDPath"
_LARGE_BYTES = 64 << 20  # decoded
_NOT_JUDGED = tuple(
    expat.errors.codes[text]
    for text in (expat.errors.XML_ERROR_UNKNOWN_ENCODING, expat.errors.XML_ERROR_UNDEFINED_ENTITY)
)


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
        """See FileSource. A large file that is malformed is one record, since Spark keeps all of it as a text.

        Cost: also parses a large file.
        """
        records = measure_text(file, source.options, f"<{_row_tag(source)}".encode())
        is_bounded = records.nbytes < _LARGE_BYTES or _is_well_formed(file, source.options)
        return records if is_bounded else FileRecords(1, records.nbytes)

    def sample(self, source: CreateSource, value: str) -> str:
        """See SparkTexts. Omits names that no element can have, as Spark does."""
        row = _row_tag(source)
        return (
            f"<{row}>{''.join(f'<{f.name}>{value}</{f.name}>' for f in source.fields if f.name.isidentifier())}</{row}>"
        )


def _is_well_formed(file: PinnedFile, options: Mapping[str, str]) -> bool:
    """Return whether a file is one XML document; also True if its reader has to judge."""
    encoding = next((value for name, value in options.items() if name.lower() in ("encoding", "charset")), None)
    parser = expat.ParserCreate(encoding)
    try:
        for block in unpack_file(file, options):
            parser.Parse(block)
        parser.Parse(b"", True)
    except expat.ExpatError as err:
        return err.code in _NOT_JUDGED
    except DAMAGED:
        return True
    return True


def _row_tag(source: CreateSource) -> str:
    return next((tag for option, tag in source.options.items() if option.lower() == _ROW_TAG.lower()), "ROW")

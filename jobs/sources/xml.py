"""XML files, an element a row, by Spark's reader."""

from typing import ClassVar

from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.sources.errors import BadOptionError, MissingOptionError
from tussock.jobs.sources.spark_files import SparkTexts

_ROW_TAG = "rowTag"
_XSD = "rowValidationXSDPath"


class XmlFiles(SparkTexts):
    """XML files, by Spark's reader. A row is an element of the name that the option rowTag gives."""

    format: ClassVar[str] = "xml"
    options_class: ClassVar[str] = "catalyst.xml.XmlOptions"

    def check(self, source: CreateSource) -> None:
        super().check(source)
        given = {option.lower(): option for option in source.options}
        if _ROW_TAG.lower() not in given:
            raise MissingOptionError(
                source.name, _ROW_TAG, "the name of the element that is a row, e.g. rowTag 'order'"
            )
        if (option := given.get(_XSD.lower())) is not None:
            reason = "whether a record is read would follow a file beside the source's, which may change"
            raise BadOptionError(source.name, option, source.options[option], reason)

    def sample(self, source: CreateSource, value: str) -> str:
        """See SparkTexts. Names that no element can have are left out by Spark too."""
        row = next((tag for option, tag in source.options.items() if option.lower() == _ROW_TAG.lower()), "ROW")
        return (
            f"<{row}>{''.join(f'<{f.name}>{value}</{f.name}>' for f in source.fields if f.name.isidentifier())}</{row}>"
        )

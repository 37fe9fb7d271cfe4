"""Texts of the values of an unparsable record, for error messages."""

import csv
import json
from collections.abc import Sequence
from xml.etree import ElementTree

from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource


def value_texts(source: CreateSource, text: str, fields: Sequence[Field]) -> dict[int, str]:
    """Return the texts of a record's values by column, from a simple parse."""
    if source.format == "json":
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        values = {name.lower(): value for name, value in record.items()} if isinstance(record, dict) else {}
        columns_and_values = ((c, values.get(field.name.lower())) for c, field in enumerate(fields))
        return {
            c: value if isinstance(value, str) else json.dumps(value)
            for c, value in columns_and_values
            if value is not None
        }
    if source.format == "csv":
        option_values = {option.lower(): value for option, value in source.options.items()}
        separator = option_values.get("sep", option_values.get("delimiter", ","))
        if len(separator) != 1:
            return {}
        try:
            parsed = next(csv.reader([text], delimiter=separator), [])
        except (csv.Error, ValueError):
            return {}
        return dict(enumerate(parsed)) if len(parsed) == len(fields) else {}
    if source.format == "xml":
        return _of_element(text, fields)
    return {}


def _of_element(text: str, fields: Sequence[Field]) -> dict[int, str]:
    """Return the texts of an XML record's attributes and childless children, by column."""
    try:
        record = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):
        return {}
    values = {f"_{name}".lower(): value for name, value in record.attrib.items()}
    values |= {
        child.tag.rpartition("}")[2].lower(): child.text.strip()
        for child in record
        if len(child) == 0 and child.text is not None
    }
    columns_and_values = ((c, values.get(field.name.lower())) for c, field in enumerate(fields))
    return {c: value for c, value in columns_and_values if value}

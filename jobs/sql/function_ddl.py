"""CREATE FUNCTION."""

from tussock.jobs.logical.errors import sql_error
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateFunction
from tussock.jobs.spark.sql_errors import translating_errors
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.grammar import Cursor, read_function
from tussock.jobs.sql.python_function import MOST_PARAMETERS
from tussock.jobs.sql.sandbox import Sandbox
from tussock.jobs.sql.table_ddl import declared_fields


def bind_function(sandbox: Sandbox, source: SourceText, cursor: Cursor, or_replace: bool) -> CreateFunction:
    """A statement after CREATE [OR REPLACE] FUNCTION, without its code. Raises SqlError."""
    begin = cursor.offset
    header = read_function(cursor, or_replace)
    if header.name not in sandbox.relations and sandbox.session.catalog.functionExists(header.name):
        raise sql_error(source, begin, f"Spark already has a function {header.name!r}; choose another name")
    parameters, returns = source.take_part(*header.parameters), source.take_part(*header.returns)
    named = []
    if parameters.text[slice(*header.parameters)].strip():
        with translating_errors(parameters):
            named = [(f.name(), f.dataType()) for f in sandbox.parser().parseTableSchema(parameters.for_spark).fields()]
    with translating_errors(returns):
        result = name_of_type(sandbox.parser().parseDataType(returns.for_spark))
    fields = declared_fields(source, header.parameters[0], named)
    if not 1 <= len(fields) <= MOST_PARAMETERS:
        reason = f"a function takes 1 to {MOST_PARAMETERS} parameters; this one has {len(fields)}"
        raise sql_error(source, header.parameters[0], reason)
    return CreateFunction(
        header.name,
        fields,
        result,
        header.module,
        header.function,
        comment=header.comment,
        if_not_exists=header.if_not_exists,
        or_replace=header.or_replace,
    )

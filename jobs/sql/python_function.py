"""Python functions in the binding session: Spark gets their names and types, and never runs them."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from py4j.java_gateway import JavaClass, JavaGateway, JavaObject
from pyspark.sql import SparkSession

from tussock.jobs.logical.statements import CreateFunction
from tussock.statestore.decoding import decode_json
from tussock.statestore.meta.catalog import Relation

MOST_PARAMETERS = 22  # of a ScalaUDF


class Jvm(Protocol):
    """The JVM of the binding session; see Sandbox."""

    session: SparkSession

    @property
    def gateway(self) -> JavaGateway: ...

    def java(self, name: str) -> JavaClass: ...

    def data_type(self, text: str) -> JavaObject: ...


class _Definition(msgspec.Struct):
    statement: CreateFunction


def function_of(relation: Relation) -> CreateFunction:
    """The statement that created a function."""
    return decode_json(relation.definition, _Definition).statement


def register_function(jvm: Jvm, function: CreateFunction) -> None:
    """Register the function's name and types in Spark as a ScalaUDF, so that Spark checks and casts its arguments."""
    encoders = getattr(jvm.java("org.apache.spark.sql.catalyst.encoders.RowEncoder$"), "MODULE$")
    option = jvm.java("scala.Option")
    taken = [option.apply(encoders.encoderForDataType(jvm.data_type(f.type), False)) for f in function.fields]
    placeholder = jvm.java("org.apache.spark.sql.expressions.SparkUserDefinedFunction")(
        _nothing_of(jvm, len(taken)),
        jvm.data_type(function.returns),
        jvm.java("org.apache.spark.api.python.PythonUtils").toSeq(taken),
        option.empty(),
        option.apply(function.name),
        True,  # it may be NULL
        True,  # it is deterministic
    )
    jvm.session._jsparkSession.udf().register(function.name, placeholder)


def unregister_function(jvm: Jvm, name: str) -> None:
    """Undo `register_function`."""
    jvm.session._jsparkSession.sessionState().catalog().dropTempFunction(name, True)


def declarations_of(functions: Sequence[CreateFunction]) -> str:
    """The declarations of functions: `f(x int, y string), g(z date)`."""
    return ", ".join(f"{f.name}({', '.join(f'{p.name} {p.type}' for p in f.fields)})" for f in functions)


def _nothing_of(jvm: Jvm, parameters: int) -> JavaObject:
    """A Scala function with this number of parameters. Spark requires one, but never runs a plan with it."""
    classes = jvm.java("java.lang.Class")
    anything = classes.forName("java.lang.Object")
    ignored = jvm.gateway.new_array(classes, parameters)
    for i in range(parameters):
        ignored[i] = anything
    handles = jvm.java("java.lang.invoke.MethodHandles")
    nothing = handles.dropArguments(handles.constant(anything, None), 0, ignored)
    face = classes.forName(f"scala.Function{parameters}")
    return jvm.java("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(face, nothing)

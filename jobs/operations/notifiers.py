"""Check the notifiers of `[notify]` without a message being sent.

Notifiers are classes of Airflow, its providers or the user. Airflow's processes import them when they send a message.
`plan` and `apply` import them too, if this Python has them, so that a mistyped name or argument is an error before the
message is needed. This file imports Airflow only through the user's names.
"""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from tussock.jobs.settings.logs import unchanged_logging
from tussock.jobs.settings.pipeline import FILE, Pipeline
from tussock.jobs.settings.tables import NotifierSettings
from tussock.jobs.settings.values import PipelineError
from tussock.statestore.errors import did_you_mean
from tussock.statestore.progress import Progress


def notifier_class(path: str) -> Any:
    """Import a class by its module and name. Raises ImportError, AttributeError."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def class_at(file: str, key: str, path: str) -> Any:
    """Import the class that a key of pipeline.toml names. Raises PipelineError."""
    module, _, name = path.rpartition(".")
    try:
        return notifier_class(path)
    except ModuleNotFoundError as err:
        raise PipelineError(file, key, repr(path), f"a module that exists: no {err.name or module}") from err
    except ImportError as err:
        raise PipelineError(file, key, f"{path!r} ({err})", "a module that can be imported") from err
    except AttributeError as err:
        near = did_you_mean(name, _classes_of(module))
        raise PipelineError(file, key, repr(path), f"a class of {module}{near.rstrip('?')}") from err


def check_notifiers(pipeline: Pipeline, progress: Progress) -> None:
    """Check each notifier that can be imported here.

    Args:
        progress: receives one line for each notifier of a package that this Python does not have.

    Raises: PipelineError for a class that its module does not define, and for arguments that it does not accept.

    Cost: imports the notifiers' modules, and with them usually Airflow. The process keeps its own logging.
    """
    for name, settings in pipeline.notify.items():
        with unchanged_logging():
            missing = _check_notifier(str(pipeline.folder / FILE), f"notify.{name}", settings)
        if missing is not None:
            progress(f"[notify.{name}] is not checked: {missing} is not installed here")


def _check_notifier(file: str, key: str, settings: NotifierSettings) -> str | None:
    """Raise PipelineError for a mistake. Return the package that is not installed, or None."""
    path = settings.notifier
    try:
        notifier = class_at(file, f"{key}.notifier", path)
    except PipelineError as err:
        missing = err.__cause__.name if isinstance(err.__cause__, ModuleNotFoundError) else None
        if missing is not None and not _is_typo(missing):
            return missing
        raise
    if not (isinstance(notifier, type) and callable(getattr(notifier, "notify", None))):
        raise PipelineError(
            file, f"{key}.notifier", repr(path), "a class with a method `notify`, as Airflow's notifiers"
        )
    _require_accepted(file, f"{key}.arguments", notifier, settings.arguments)
    return None


def _classes_of(module: str) -> list[str]:
    return [name for name, value in vars(sys.modules[module]).items() if isinstance(value, type)]


def _is_typo(missing: str) -> bool:
    """Whether a missing module belongs to an installed package, and not to one that is not installed.

    The providers of Airflow share the namespace package `airflow.providers`, which has no file.
    """
    parent = sys.modules.get(missing.rpartition(".")[0])
    return parent is not None and getattr(parent, "__file__", None) is not None


def _require_accepted(file: str, key: str, notifier: type, arguments: Mapping[str, Any]) -> None:
    """Raise PipelineError for an argument that the class does not take, and for a required one that is missing."""
    taken = signature(notifier).parameters
    known = [name for name, p in taken.items() if p.kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    takes_all = any(p.kind is Parameter.VAR_KEYWORD for p in taken.values())
    for name in arguments:
        if name not in known and not takes_all:
            near = get_close_matches(name, known, n=1)
            expected = f"{near[0]!r}, the nearest argument" if near else f"one of {', '.join(known)}"
            raise PipelineError(file, f"{key}.{name}", f"an unknown argument of {notifier.__name__}", expected)
    for name in known:
        if taken[name].default is Parameter.empty and name not in arguments:
            raise PipelineError(file, f"{key}.{name}", "nothing", f"a value: {notifier.__name__} requires it")

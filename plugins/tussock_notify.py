"""Messages about a pipeline's trouble, by the notifiers of `[notify]` in pipeline.toml.

Tasks carry a callback for their failure, and the check of a deadline calls `send_late`. Parsing imports no notifier.
Templates in the arguments of a notifier see Airflow's context, and `tussock`: a `Notice`.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async

from tussock.jobs.operations.notifiers import notifier_class
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.tables import NoticeEvent, NotifierSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """The variable `tussock` of a notifier's templates."""

    event: str  # failed, held, paused, evolved or late
    pipeline: str
    environment: str  # empty if none was chosen
    text: str  # the finding, its reason and the next step
    task: str = ""  # the failed task; empty if late
    run: str = ""  # the run's id; empty if late
    view: str = ""  # the view that is late

    @property
    def title(self) -> str:
        """A line for a subject, such as `shop (prod): run_actors failed`."""
        where = f"{self.pipeline} ({self.environment})" if self.environment else self.pipeline
        return f"{where}: {f'view {self.view} is late' if self.view else f'{self.task} {self.event}'}"


@dataclass(frozen=True, slots=True)
class SendNotices:
    """The callback of a failed task: send a message by each notifier that reports the event.

    An error may have `notices`: pairs of an event and a text. Any other error is one message of the event `failed`.
    """

    pipeline: Pipeline

    def __call__(self, context: Any) -> None:
        """Send all messages. An error of one notifier is logged, and does not affect the others."""
        error = context.get("exception")
        text = "\n".join([str(error or "see the log of the task"), *getattr(error, "__notes__", ())])
        for event, said in getattr(error, "notices", ((NoticeEvent.FAILED, text),)):
            self.send(context, event, said)

    def send(self, context: Any, event: NoticeEvent, text: str) -> None:
        """Send the messages about one event of a task."""
        task, of = context["ti"], self.pipeline
        notice = Notice(event, of.name, of.environment, text, task=task.task_id, run=task.run_id)
        for name, settings in _for_event(of, event).items():
            try:
                notifier_class(settings.notifier)(**settings.arguments)({**context, "tussock": notice})
            except Exception:
                log.exception("no message by [notify.%s]", name)


def sends_no_message(err: Exception) -> None:
    """Mark an error as reported: another task of the run has sent the message of its cause."""
    vars(err)["notices"] = ()


def on_failure(pipeline: Pipeline) -> dict[str, Any]:
    """Return the arguments of a task that reports its failure; empty if the pipeline has no notifier."""
    return {"on_failure_callback": SendNotices(pipeline)} if pipeline.notify else {}


async def send_late(pipeline: Pipeline, view: str, text: str, context: Mapping[str, Any]) -> None:
    """Send the messages about a late view, in the triggerer. An error of one notifier does not affect the others."""
    notice = Notice(NoticeEvent.LATE, pipeline.name, pipeline.environment, text, view=view)
    for name, settings in _for_event(pipeline, NoticeEvent.LATE).items():
        try:
            await _send_in_triggerer(settings, {**context, "tussock": notice})
        except Exception:
            log.exception("no message by [notify.%s]", name)


async def _send_in_triggerer(settings: NotifierSettings, context: dict[str, Any]) -> None:
    """Use the notifier's coroutine if it has one, since a blocked triggerer delays all deferred tasks."""
    made = notifier_class(settings.notifier)
    notifier = made(**settings.arguments)
    if hasattr(made, "__await__"):  # not in Airflow 3.1
        notifier.context = context
        with suppress(NotImplementedError):  # the base class is awaitable, and the notifier has no coroutine
            await notifier
            return
    await sync_to_async(made(**settings.arguments))(context)


def _for_event(pipeline: Pipeline, event: NoticeEvent) -> dict[str, NotifierSettings]:
    return {name: settings for name, settings in pipeline.notify.items() if event in settings.on}

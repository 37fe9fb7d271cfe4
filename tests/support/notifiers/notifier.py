"""A notifier that appends its text to a file, for tests that run Airflow."""

from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier


class FileNotifier(BaseNotifier):
    """Appends `text` to `file` as one line."""

    template_fields = ("text",)

    def __init__(
        self, *, file: str, text: str = "{{ tussock.event }}: {{ tussock.title }}: {{ tussock.text }}"
    ) -> None:
        super().__init__()
        self.file, self.text = file, text

    def notify(self, context: Any) -> None:
        with Path(self.file).open("a") as out:
            out.write(self.text.replace("\n", " ") + "\n")

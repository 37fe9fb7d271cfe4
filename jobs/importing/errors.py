"""Errors of `tussock import`."""

from tussock.statestore.errors import InputError


class ProjectError(InputError):
    """A file of the project cannot be imported. The message has the finding, the expectation and the remedy."""

    place: str
    finding: str
    expected: str

    def __str__(self) -> str:
        return f"{self.place}: found {self.finding}. Expected {self.expected}. Nothing was written."


class EditedFileError(InputError):
    """A file of the pipeline that the import would write was not written by it, or was edited since."""

    path: str
    edited: bool

    def __str__(self) -> str:
        why = "was edited after an import had written it" if self.edited else "was not written by an import"
        return (
            f"{self.path} {why}, and was not changed. Nothing was written. Move your statements into another file that "
            f"pipeline.toml lists in `sql`, or change the project. Then remove {self.path} and import again, or choose "
            "another pipeline with --name."
        )

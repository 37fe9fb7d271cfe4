"""The documents of file sources: the files that a barrier pins, or that a part of the input consists of.

A barrier stores a JSON list of PinnedFile. Barriers of all releases use this format, and the same decoder reads them.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tussock.jobs.sources.file_portions import is_further
from tussock.jobs.sources.pins import PinnedFile
from tussock.statestore.decoding import decoder_of

_files = decoder_of(tuple[PinnedFile, ...])


def files_of(document: msgspec.Raw | None) -> tuple[PinnedFile, ...]:
    """Return the files that a document pins."""
    return () if document is None else _files.decode(document)


def document_of(files: Sequence[PinnedFile]) -> msgspec.Raw:
    """Return the document that pins these files."""
    return msgspec.Raw(msgspec.json.encode(files))


def takes_back(document: msgspec.Raw) -> bool:
    """Return whether a document pins files whose rows are taken back. False for sources without files."""
    return b'"weight":-1' in bytes(document) and any(f.weight < 0 for f in files_of(document))


def names_ids(document: msgspec.Raw) -> bool:
    """Return whether rows of a document's files may keep ids of other files. It may be of any source."""
    encoded = bytes(document)
    return b'"ids":"' in encoded or b'"meets":' in encoded


def files_to_decide(document: msgspec.Raw) -> list[PinnedFile]:
    """Return the new files of a barrier. Files that are taken back and further portions were decided before."""
    return [f for f in files_of(document) if f.weight > 0 and not is_further(f)]


def divided_files(
    document: msgspec.Raw, by_spark: Mapping[str, str]
) -> tuple[list[PinnedFile], msgspec.Raw | None, str]:
    """Return the files for actors, the document of those that Spark reads, and why it reads the first one.

    Args:
        by_spark: the barrier's record of files that Spark reads. Taken files have their own.
    """
    files = files_of(document)
    reasons = [by_spark.get(file.path) or file.by_spark for file in files]
    plain = [file for file, reason in zip(files, reasons, strict=True) if not reason]
    rest = [file for file, reason in zip(files, reasons, strict=True) if reason]
    why = next((f"{file.path}: {reason}" for file, reason in zip(files, reasons, strict=True) if reason), "")
    return plain, document_of(rest) if rest else None, why


def in_new_folder(document: msgspec.Raw, moves: Sequence[tuple[str, str]]) -> msgspec.Raw:
    """Return a document whose files are where they are after moves (earlier folder, new folder).

    Only sources of files move; without moves, the document may be of any source.
    """
    if not moves:
        return document
    files = files_of(document)
    for was, base in moves:
        files = tuple(msgspec.structs.replace(f, path=moved_path(f.path, was, base)) for f in files)
    return document_of(files)


def moved_path(path: str, was: str, base: str) -> str:
    """Return the path of a file after its folder `was` became `base`; a file elsewhere stays."""
    return f"{base}/{path.removeprefix(f'{was}/')}" if path.startswith(f"{was}/") else path

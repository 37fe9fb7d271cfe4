"""Pages of few SSTs, so that small stores of tests have them. Real ones begin at thousands of SSTs."""

import pytest

from tussock.statestore.meta import pages


def small_pages(patch: pytest.MonkeyPatch, page_ssts: int = 4, paged_ssts: int = 16) -> None:
    """Write pages of `page_ssts` SSTs on average, for versions of at least `paged_ssts` SSTs below L0."""
    patch.setattr(pages, "PAGE_SSTS", page_ssts)
    patch.setattr(pages, "PAGED_SSTS", paged_ssts)

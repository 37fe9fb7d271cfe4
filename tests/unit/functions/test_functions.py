"""Every Spark function is in the registry with a correct verdict, and views with it return Spark's values."""

from tests.support.functions.functions import FUNCTIONS
from tests.support.functions.registry import PAGE, page


def test_the_page_is_the_registry_s() -> None:
    assert PAGE.read_text() == page(FUNCTIONS), "run `make docs`"

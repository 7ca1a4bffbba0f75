"""The generated page is current and says everything that is declared."""

from pathlib import Path

from antrea.openflow.document import document
from antrea.openflow.fields import FIELDS, MARKS
from antrea.openflow.tables import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "pipeline.md"


def test_the_generated_page_of_the_pipeline_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == document()


def test_the_generated_page_has_the_purpose_of_every_table_field_and_mark() -> None:
    page = document()
    sentences = [*(table.purpose for table in TABLES), *(field.purpose for field in FIELDS)]
    assert [purpose for purpose in sentences if f"| {purpose} |" not in page] == []
    assert [purpose for purpose in sentences if not purpose.endswith(".")] == []
    assert [name for name, mark in MARKS.items() if mark.purpose not in page] == []

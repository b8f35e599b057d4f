"""The page about output says of every column and field what they say of themselves."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "refresh_columns.py"


def test_page_has_the_lines_of_all_columns_and_fields():
    spec = importlib.util.spec_from_file_location("refresh_columns", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.PAGE.read_text(encoding="utf-8")
    assert len(tool.BLOCK.findall(page)) == 2
    assert tool.refreshed(page) == page, "run: python tools/refresh_columns.py"
    assert all(column.meaning for column in (*tool.COLUMNS, *tool.LIMITS))
    assert all(f"`{entry.key}`" in page for entry in tool.FIELDS)

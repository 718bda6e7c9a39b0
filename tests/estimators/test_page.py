"""The examples of the page on estimators run, warnings as errors."""

import re
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

PAGE = Path(__file__).parent.parent.parent / "docs" / "estimators.md"


def test_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 7
    exec(compile("\n".join(blocks), str(PAGE), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert float(lines[0]) >= 0.9
    assert "False" not in lines
    assert any("The theorem holds by construction" in line for line in lines)

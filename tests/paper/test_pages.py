"""Generated tables are those of the records, and every number of a sentence has its cell."""

import json

import pytest
from invented_runs import arm, run
from prose import problems

from benchmarks import record
from benchmarks import tables as speed
from paper import ROOT, collect, plan, tables
from paper.pages import filled, markdown
from roann.lab.config import parse, read_text

PAGES = ("paper/findings.md", "README.md")
SMALL = {"t": (("run", "best", "seeds"), [["`a-400`", "97.34 %", "4 of 5"]])}


@pytest.fixture(scope="module")
def made():
    return tables.tables(collect.read_records(ROOT / "results"))


@pytest.mark.parametrize("page", PAGES)
def test_every_generated_cell_is_that_of_the_records(page, made):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert filled(text, {name: markdown(table) for name, table in made.items()}) == text


@pytest.mark.parametrize("page", [*PAGES, "docs/benchmark.md"])
def test_every_number_of_a_sentence_is_that_of_its_cell(page, made):
    measured = record.read(ROOT / "results/bench/amd-epyc-2t.json")
    known = made | {"targets": speed.targets(measured)}
    assert list(problems((ROOT / page).read_text(encoding="utf-8"), known)) == []


def test_every_table_is_on_a_page(made):
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in made if f"<!-- table: {name} -->" not in text] == []
    for head, rows in made.values():
        assert {len(row) for row in rows} == {len(head)}


def test_a_changed_record_changes_the_page(made):
    """A page whose cells were edited, or whose records changed, does not pass."""
    text = (ROOT / PAGES[0]).read_text(encoding="utf-8").replace("| 97.34 % |", "| 97.35 % |", 1)
    assert filled(text, {name: markdown(table) for name, table in made.items()}) != text


@pytest.mark.parametrize(
    "good",
    [
        "It reaches 97.34 % <!-- t: a-400 | best --> at most.",
        "In 4 of 5 seeds, <!-- t: a-400 | seeds --> not in all.",
        "The paper has 97.24 %. <!-- paper -->",
        "At L = 400 and 2,000, in Figs. 4 and 5 and Table 1, `a-400` and seed 3 are names.",
        "## 50 layers\n\n```sh\nmake 12\n```\n\n$x_1$ and [a link](page-7.md).",
        "| 1 | 2 |\n<!-- table: t -->\n| 3 |\n<!-- end -->\n".removeprefix("| 1 | 2 |\n"),
    ],
)
def test_numbers_with_a_reference_pass(good):
    assert list(problems(good, SMALL)) == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("It reaches 97.34 %.", "97.34 in"),
        ("It reaches 97.35 %. <!-- t: a-400 | best -->", "97.35 in"),
        ("It reaches 97.3 %. <!-- t: a-400 | best -->", "97.3 in"),
        ("It reaches 97.34 %. <!-- t: b | best -->", "(None)"),
        ("It reaches 97.34 %. <!-- u: a-400 | best -->", "(None)"),
        ("It reaches 97.34 %. <!-- t: a-400 | worst -->", "(None)"),
        ("In 4 of 6 seeds. <!-- t: a-400 | seeds -->", "6 in"),
        ("A mark. <!-- paper --> It reaches 5.", "5 in"),
        ("It reaches 5.\n\nAnother paragraph. <!-- paper -->", "5 in"),
    ],
)
def test_numbers_without_one_or_with_another_are_named(bad, words):
    (found,) = problems(bad, SMALL)
    assert words in found


def test_columns_of_numbers_stand_to_the_right():
    table = ("run", "best", "and then"), [["a", "−1.5", "lost"], ["b", "–", "3"]]
    assert markdown(table).splitlines()[1] == "| --- | ---: | --- |"
    assert markdown((("a", "b"), [])) == "| a | b |\n| ---: | ---: |\n"


def test_an_unknown_table_is_an_error():
    with pytest.raises(KeyError, match="absent"):
        filled("<!-- table: absent -->\n<!-- end -->", {})


@pytest.mark.parametrize("figure", plan.FIGURES)
def test_every_planned_run_has_a_record_of_its_config_and_none_is_left_over(figure):
    planned = plan.experiments(figure, "full")
    paths = {path.stem: path for path in (ROOT / "results" / figure).glob("*.jsonl")}
    assert paths.keys() == planned.keys()
    for name, path in paths.items():
        with open(path, encoding="utf-8") as file:
            head = json.loads(file.readline())
        assert parse(read_text(head["config"])).digest() == planned[name].digest(), name
        assert head["result"].get("status", "unfinished") in ("finished", "diverged", "unfinished")


def test_defaults_stand_beside_the_papers_setting(monkeypatch):
    row = {"task": "t", "defaults": "recipe/a", "setting": "fig2/b", "elsewhere": "LEM"}
    others = [{"task": "u", "defaults": "recipe/c"}, {"task": "v", "defaults": "recipe/d"}]
    monkeypatch.setitem(tables.CLAIMS, "beyond", [row, *others])
    fast, slow = run("a-s0", "copying", [0.2, 0.995]), run("a-s1", "copying", [0.2, 0.3, 0.995])
    lost = run("b-s0", "copying", [0.2, 0.3])
    never = run("c-s0", "copying", [0.5])
    made = {"recipe": {"a": arm(fast, slow), "c": arm(never)}, "fig2": {"b": arm(lost)}}
    _, rows = tables.beyond(made)
    assert rows == [
        ["t", "2 of 2, step 300", "0 of 1", "LEM"],
        ["u", "0 of 1", "not run", "–"],
        ["v", "not run", "not run", "–"],
    ]


def test_a_table_by_value():
    fell = run("a-s1", "copying", [0.2, 0.995, 0.13], probes=[{"step": 0, "norm_W": 2.0}])
    kept = run("a-s0", "copying", [0.2, 0.995, 0.997, 0.999])
    made = {"fig2": {"a": arm(kept, fell)}}
    columns = ["best", "median at the end", "lost", "collapsed", "step to the goal"]
    head, rows = tables.from_spec(made, {"arms": ["fig2/*"], "columns": columns})
    assert head == ["run", *columns]
    assert rows == [["`a`", "99.90 %", "56.45 %", "1 of 2", "1 of 2", "200, 200"]]
    columns = ["goal at the end", "goal at the best", "stopped early"]
    _, rows = tables.from_spec(made, {"arms": ["fig2/a"], "columns": columns})
    assert rows == [["`a`", "1 of 2", "2 of 2", "1 of 2"]]  # stopped by three good ones in a row
    columns = ["step to the goal", "end", "collapses", "‖W‖ at the start"]
    _, rows = tables.from_spec(made, {"arms": ["fig2/a"], "rows": "seeds", "columns": columns})
    assert rows == [
        ["`a` seed 0", "200", "99.90 %", "0", "–"],
        ["`a` seed 1", "200", "13.00 %", "1", "2"],
    ]

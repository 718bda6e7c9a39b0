"""The report: which figures it shows, and the page as a parser sees it."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_runs import ADDING, ROA, adding_evals, copying_evals, probe, write_many, write_run

from roann.lab.report import (
    ReportError,
    duration,
    load_run,
    load_runs,
    sections_of,
    write_report,
)
from roann.lab.report.exhibits import exhibits_of, score_text

HOSTILE = "<script>alert(1)</script>\u202egnp.exe\x1b[31m\"' onload=alert(1)"
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Every element with its attributes, the text, and whether tags nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def attributes(self, tag: str, name: str) -> list[str]:
        return [attrs[name] for other, attrs in self.elements if other == tag and name in attrs]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_many(root)
    return root


@pytest.fixture(scope="module")
def text(library: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("out") / "report.html"
    assert write_report([library], out) == out
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_every_kind_of_record_becomes_a_figure(library: Path):
    titles = {
        section.title: [exhibit.title.partition(": ")[2] for exhibit in exhibits_of(section)]
        for section in sections_of(load_runs([library]))
    }
    assert titles["Double moon"] == ["mean squared error", "accuracy", "decision surfaces"]
    assert titles["Copying memory, L = 400"] == [
        "recall accuracy", "cross-entropy", "the norm of W", "gradient along time",
        "singular values", "eigenvalues of one step",
    ]  # fmt: skip
    assert titles["Adding problem, T = 200"] == ["final score against ρ"]
    assert titles["Adding problem, T = 1,000"] == ["mean squared error"]
    assert titles["Permuted sequential MNIST"] == ["accuracy", "cross-entropy"]


def test_rho_figure_holds_the_final_scores(library: Path):
    section = sections_of(load_runs([library]))[2]
    (exhibit,) = exhibits_of(section)
    line = next(x for x in exhibit.figure.axes[0].get_lines() if x.get_label() == "roa-rnn")
    expected = {
        arm.model["rho"]: sorted(o.last for o in arm.outcomes if o.last is not None)
        for arm in section.arms
    }
    assert list(line.get_xdata()) == sorted(expected)
    for rho, median in zip(line.get_xdata(), line.get_ydata(), strict=True):
        assert median == pytest.approx(sum(expected[rho]) / len(expected[rho]))


def test_the_norm_of_W_is_that_of_the_seeds_which_were_probed(tmp_path: Path):
    """One of two was: its line is the arm's line, and no second seed is claimed."""
    for seed in range(2):
        probes = [probe(step, "roa", seed) for step in (0, 500)] if seed == 0 else []
        write_run(tmp_path / f"adding-s{seed}", task=ADDING, model=ROA, train={"seed": seed},
                  evals=adding_evals(0.3, seed), probes=probes)  # fmt: skip
    (section,) = sections_of(load_runs([tmp_path]))
    norm = next(e for e in exhibits_of(section) if e.title.endswith("the norm of W"))
    (line,) = [x for x in norm.figure.axes[0].get_lines() if x.get_label() == "roa-rnn"]
    assert list(line.get_xdata()) == [0, 500]
    assert list(line.get_ydata()) == [probe(step, "roa", 0)["norm_W"] for step in (0, 500)]


def test_page_asks_nothing_of_anyone(page: Page, text: str):
    policy = [a["content"] for t, a in page.elements
              if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    assert len(policy) == 1
    assert policy[0].startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    assert not {"script", "iframe", "object", "embed", "form", "base"} & {
        t for t, _ in page.elements
    }
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert "://" not in value, (tag, name, value)
            if name in {"href", "src", "xlink:href", "srcset", "action", "poster"}:
                assert value.startswith(("#", "data:")), (tag, name, value)
    assert "url(http" not in text
    assert "@import" not in text


def test_identifiers_are_unique_and_every_link_leads_somewhere(page: Page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = page.attributes("a", "href") + page.attributes("use", "href")
    assert len(links) > 60
    assert {link[1:] for link in links} <= set(ids)
    for attributes in (a for _, a in page.elements if "clip-path" in a):
        assert re.fullmatch(r"url\(#(.+)\)", attributes["clip-path"])[1] in ids


def test_figures_have_words_for_those_who_do_not_see_them(page: Page):
    drawings = [a for t, a in page.elements if t == "svg" and a.get("aria-hidden") != "true"]
    assert len(drawings) == 13
    assert all(a["role"] == "img" and len(a["aria-label"]) > 40 for a in drawings)
    assert len([t for t, _ in page.elements if t == "figcaption"]) == 13
    headers = [a for t, a in page.elements if t == "th"]
    assert all(a["scope"] in {"row", "col", "rowgroup"} for a in headers)
    assert page.attributes("html", "lang") == ["en"]


def test_the_table_has_ours_and_the_trivial(page: Page, library: Path):
    words = " ".join(" ".join(page.text).split())
    section = sections_of(load_runs([library]))[1]
    best = score_text("recall_accuracy", section.arms[0].best)
    assert f"recall accuracy, trivial 12.50 % roa-rnn {best} " in words
    assert "5, 1 collapsed" in words
    assert "diverged at 700" in words
    assert "(so far)" in words
    assert "chosen by validation" in words
    assert "53 runs on 5 tasks; 2 diverged" in words
    assert "the loss is nan in update 701" in words
    assert 'permutation = "nengo"' in words
    assert "2.13.0+cpu" in words


def test_the_same_runs_give_the_same_bytes_wherever_they_lie(
    text: str, library: Path, tmp_path: Path
):
    moved = shutil.copytree(library, tmp_path / "elsewhere" / "runs")
    again = write_report([moved], tmp_path / "deep" / "er" / "report.html")
    assert again.read_text(encoding="utf-8") == text
    assert [path.name for path in again.parent.iterdir()] == ["report.html"]


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    root = tmp_path / "runs"
    name = HOSTILE.replace("/", "|")
    for seed in range(2):
        write_run(
            root / f"{name}{seed}", task={"name": HOSTILE, "length": 3}, evals=adding_evals(0.2, 0),
            model={"name": HOSTILE, "filter": f"$\\frac{{{seed}"}, train={"seed": seed},
        )  # fmt: skip
        result = root / f"{name}{seed}" / "result.json"
        facts = json.loads(result.read_text(encoding="utf-8"))
        result.write_text(json.dumps(facts | {"cause": HOSTILE}), encoding="utf-8")
        (root / f"{name}{seed}" / "env.json").write_text(json.dumps({HOSTILE: HOSTILE}), "utf-8")
    out = write_report([root], tmp_path / "report.html", title=HOSTILE)
    return out.read_text(encoding="utf-8")


def test_hostile_names_are_inert(hostile: str):
    page = Page(hostile)
    assert "script" not in {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, a in page.elements for name in a)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in hostile
    assert "\u202e" not in hostile
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", hostile)
    assert "$\\frac{0" in "".join(page.text)


def test_a_run_without_any_record_is_still_a_page(tmp_path: Path):
    run = write_run(tmp_path / "a", task=ADDING, model=ROA, evals=[], status=None)
    (run / "metrics.jsonl").unlink()
    text = write_report([run], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "1 still unfinished" in text
    Page(text)


def test_a_failed_report_leaves_the_old_one(tmp_path: Path):
    out = tmp_path / "r.html"
    out.write_text("old", encoding="utf-8")
    with pytest.raises(ReportError):
        write_report([tmp_path / "nothing"], out)
    assert out.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (4.21, "4.21 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"),
     (3599.9, "1 h 00 min"), (7500, "2 h 05 min")],
)  # fmt: skip
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text.replace(" ", "\xa0")


def _luminance(code: str) -> float:
    parts = [int(code[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_contrast_in_light_dark_and_print(text: str):
    themes = re.findall(r":root \{(.*?)\}", text, flags=re.S)
    assert len(themes) == 3
    for theme in themes:
        colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", theme))
        pairs = [(ink, ground) for ink in ("ink", "muted", "accent", "good", "bad")
                 for ground in ("paper", "ground")]  # fmt: skip
        for ink, ground in [*pairs, ("accent", "accent-soft"), ("keep", "keep-soft")]:
            high, low = sorted((_luminance(colors[ink]), _luminance(colors[ground])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def test_copying_shows_recall_before_loss(tmp_path: Path):
    run = write_run(
        tmp_path / "a", task={"name": "copying", "lag": 400}, model=ROA,
        evals=copying_evals(0.6, 0),
    )  # fmt: skip
    exhibits = exhibits_of(sections_of([load_run(run)])[0])
    first, second = (exhibit.figure.axes[0] for exhibit in exhibits)
    assert (first.get_ylabel(), first.get_yscale()) == ("recall accuracy", "linear")
    assert (second.get_ylabel(), second.get_yscale()) == ("cross-entropy", "log")


def test_a_system_of_which_only_the_extreme_values_are_known_is_drawn_too(tmp_path: Path):
    values = {
        "roa-rnn": {"sigma": [0.1, -0.3]},
        "urnn": {"sigma_max": 0.05, "sigma_min": -2.0},
        "dilated-cnn": {"sigma_max": None, "sigma_min": None},
    }
    for name, seen in values.items():
        model = {"name": name, "hidden_size": 4}
        write_run(
            tmp_path / name, task=ADDING, model=model, evals=adding_evals(0.1, 0),
            probes=[{"step": 10, "maps": 5, **seen}],
        )  # fmt: skip
    (section,) = sections_of(load_runs([tmp_path]))
    (exhibit,) = [e for e in exhibits_of(section) if e.title.endswith("singular values")]
    (legend,) = exhibit.figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert sum("extremes only" in label for label in labels) == 2
    assert any("urnn" in label and "extremes only" in label for label in labels)
    assert any("dilated-cnn" in label and "all are 0" in label for label in labels)
    assert "of more than 1,024 numbers only the largest and the smallest" in exhibit.caption
    assert "Arrow at the bottom: all are exactly 0." in exhibit.caption


def test_a_shorter_trial_of_a_seed_is_not_another_seed(tmp_path: Path):
    for name, length in (("trial", 3), ("whole", 30)):
        folder, evals = tmp_path / name, adding_evals(0.5, 0, length)
        write_run(folder, task=ADDING, model=ROA, evals=evals, train={"length": 100 * length})
    write_run(tmp_path / "other", task=ADDING, model=ROA, evals=evals, train={"seed": 1})
    (section,) = sections_of(load_runs([tmp_path]))
    (arm,) = section.arms
    assert [run.name for run in arm.runs] == ["whole", "other"]
    assert arm.left_out == 1
    page = write_report([tmp_path], tmp_path / "page.html", title="x").read_text()
    assert "2, 1 shorter left out" in page


def test_an_arm_is_not_named_as_another_without_its_change(tmp_path: Path):
    plans = ({"lr": 0.1}, {"lr": 0.5, "clip_norm": 0.01}, {"lr": 0.5, "warmup": 50})
    for k, plan in enumerate(plans):
        write_run(tmp_path / f"{k}", task=ADDING, model=ROA, evals=adding_evals(0.5, k), train=plan)
    (section,) = sections_of(load_runs([tmp_path]))
    assert [arm.label for arm in section.arms] == [
        "roa-rnn, lr = 0.1", "roa-rnn, lr = 0.5, clip norm = 0.01", "roa-rnn, lr = 0.5, warmup = 50"
    ]  # fmt: skip

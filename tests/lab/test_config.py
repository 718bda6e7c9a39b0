"""Experiment files: what they may hold, what is refused and in which words, and the way back."""

import dataclasses
import math
import re
import string
import sys
import tomllib
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roann.filters import FILTERS
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.memory import MEMORIES
from roann.lab.config import (
    MAX_FILE,
    RUN_ID,
    ConfigError,
    Train,
    parse,
    read_tables,
    read_text,
    to_toml,
)
from roann.lab.models import MODELS
from roann.lab.run import build
from roann.lab.tasks import TASKS

GOOD = """
[task]
name = "adding"
length = 100
[model]
name = "roa-rnn"
rho = 1
[train]
lr = 0.5
schedule = [[10, 0.1], [20, 1]]
"""


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as info:
        parse(read_text(text))
    return str(info.value)


def test_a_file_becomes_settings_with_defaults_filled_in():
    experiment = parse(read_text(GOOD))
    assert (experiment.task_name, experiment.model_name) == ("adding", "roa-rnn")
    assert experiment.task.length == 100
    assert experiment.task.batch_size == TASKS["adding"].config().batch_size
    assert experiment.model.rho == 1.0
    assert experiment.train == Train(lr=0.5, schedule=((10, 0.1), (20, 1.0)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        experiment.train.lr = 1.0


@pytest.mark.parametrize(
    ("task", "model"), [*((t, "lstm") for t in TASKS), *(("adding", m) for m in MODELS)]
)
def test_the_resolved_config_reads_back_as_itself(task, model):
    experiment = parse({"task": {"name": task}, "model": {"name": model}})
    text = to_toml(experiment.tables())
    assert parse(read_text(text)) == experiment
    assert parse(read_text(text)).digest() == experiment.digest()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("lr = 0.5", "lrr = 0.5", ["[train] key 'lrr'", "did you mean 'lr'?"]),
        ("length = 100", "lenght = 100", ["[task]", "'lenght'", "did you mean 'length'?"]),
        ("[model]", "[modle]", ["table 'modle'", "did you mean 'model'?"]),
        ('"adding"', '"ading"', ["[task] name", "'ading'", "did you mean 'adding'?"]),
        ('"roa-rnn"', '"os.system"', ["[model] name", "os.system"]),
        ('name = "adding"', "", ["[task] needs name", "copying"]),
        ("lr = 0.5", "lr = nan", ["[train] lr", "finite", "nan"]),
        ("lr = 0.5", "lr = inf", ["[train] lr", "finite"]),
        ("lr = 0.5", "lr = 1e999", ["[train] lr", "finite"]),
        ("rho = 1", "rho = -inf", ["[model] rho", "finite"]),
        ("lr = 0.5", "lr = -1.0", ["[train] lr", "greater than 0", "-1.0"]),
        ("lr = 0.5", 'lr = "0.5"', ["[train] lr", "valid number", "'0.5'"]),
        ("lr = 0.5", "lr = true", ["[train] lr", "valid number", "True"]),
        ("lr = 0.5", "lr = 1979-05-27", ["[train] lr", "date"]),
        ("lr = 0.5", "lr = {a = 1}", ["[train] lr", "dict"]),
        ("length = 100", "length = 100.0", ["[task] length", "valid integer", "100.0"]),
        ("length = 100", "length = true", ["[task] length", "valid integer", "True"]),
        ("length = 100", "length = 99999999999", ["length", "1000000", "99999999999"]),
        ("length = 100", "length = 0x" + "f" * 9000, ["[task] length", "64 bits"]),
        ("lr = 0.5", "seed = -1", ["[train] seed", "-1"]),
        ("[[10, 0.1], [20, 1]]", "[[10]]", ["[train] schedule"]),
        ("[[10, 0.1], [20, 1]]", "[" * 2000 + "]" * 2000, ["nested too deeply"]),
        ("[[10, 0.1], [20, 1]]", "[[[[[[[[1]]]]]]]]", ["[train] schedule"]),
        ("lr = 0.5", 'optimizer = "adamw"', ["[train] optimizer", "'adamw'; did you mean 'adam'?"]),
        ("[task]", "sweep = 3\n[task]", ["[sweep] must be a table", "3"]),
        ("[task]", "[task", ["not valid TOML"]),
        ("lr = 0.5", "lr = 0.5\nlr = 0.6", ["not valid TOML"]),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_cure(old, new, words):
    assert old in GOOD
    message = refused(GOOD.replace(old, new, 1))
    for word in words:
        assert word in message


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "big.toml").write_bytes(b"#" * (MAX_FILE + 1))
    (tmp_path / "latin.toml").write_bytes(b'[task]\nname = "\xe9"')
    (tmp_path / "folder.toml").mkdir()
    for name, word in [
        ("absent.toml", "No such file"),
        ("big.toml", "at most"),
        ("latin.toml", "UTF-8"),
        ("folder.toml", "directory"),
        ("nul\0.toml", "null"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(word)) as info:
            read_tables(tmp_path / name)
        assert name in str(info.value)


def test_equal_experiments_have_one_id_and_others_have_others():
    one = parse(read_text(GOOD))
    same = parse(read_text(GOOD.replace("rho = 1", 'rho = 1.0\nfilter = "qr"')))
    assert one.run_id("A b/../c") == same.run_id("A b/../c")
    ids = {one.run_id("x")}
    ids.add(parse(read_text(GOOD.replace("rho = 1", "rho = 2"))).run_id("x"))
    ids.add(parse(read_text(GOOD.replace("lr = 0.5", "seed = 1"))).run_id("x"))
    ids.add(parse(read_text(GOOD.replace("length = 100", "length = 101"))).run_id("x"))
    assert len(ids) == 4


@given(st.text(max_size=200))
def test_a_run_id_is_safe_as_a_name_whatever_it_is_made_from(name):
    assert RUN_ID.fullmatch(parse(read_text(GOOD)).run_id(name))


plain = st.recursive(
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda items: st.lists(items, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(string.ascii_lowercase + "_", min_size=1), plain, max_size=5))
def test_what_is_written_is_what_is_read(table):
    assert tomllib.loads(to_toml({"train": table})) == {"train": table}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_to_the_last_bit(value):
    back = tomllib.loads(to_toml({"train": {"x": value}}))["train"]["x"]
    assert isinstance(back, float)
    assert back == value
    assert math.copysign(1, back) == math.copysign(1, value)


def only_config_errors(text: str) -> None:
    with suppress(ConfigError):
        parse(read_text(text))


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_in_words(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_bytes(data)
    with suppress(ConfigError):
        parse(read_tables(path))


@given(st.text(max_size=300))
def test_random_text_is_refused_in_words(text):
    only_config_errors(text)


keys = st.sampled_from(
    ["name", "length", "lag", "hidden_size", "rho", "filter", "lr", "seed", "schedule", "__class__"]
)
names = st.sampled_from([*TASKS, *MODELS, "__import__('os').abort()", "roann.lab.cli:main", "../x"])
tables = st.dictionaries(
    st.sampled_from(["task", "model", "train", "sweep", "x"]),
    st.dictionaries(keys, plain | names | st.integers(0, 300), max_size=4),
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=100)
@given(tables)
def test_well_formed_nonsense_is_refused_in_words_and_nothing_is_imported(tables):
    before = set(sys.modules)
    only_config_errors(to_toml(tables))
    assert not {m for m in set(sys.modules) - before if not m.startswith(("pydantic", "roann."))}


@settings(max_examples=100)
@given(st.integers(0, len(GOOD) - 1), st.characters(codec="utf-8"))
def test_one_wrong_character_is_never_a_crash(place, character):
    only_config_errors(GOOD[:place] + character + GOOD[place + 1 :])


HUGE = "0x" + "f" * 5000  # more digits than Python shows
LONG = ".".join("a" * 20_000)  # 40 kB: tomllib alone takes 18 s


@pytest.mark.parametrize(
    "text",
    [
        f"[train]\nseed = {HUGE}",
        f"[train]\nprobe_at = [0, {HUGE}]",
        f"task = {HUGE}",
        f"[sweep]\n'train.seed' = [{HUGE}]",
        f"[sweep]\n'train.seed' = {HUGE}",
        f"[sweep]\ntrain = {{seed = [[{HUGE}]]}}",
        "[train]\nseed = 9223372036854775808",
    ],
)
def test_an_integer_too_large_to_show_is_refused_in_words(text):
    with pytest.raises(ConfigError, match=r"\] ?.* must be an integer of at most 64 bits"):
        read_text(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]",
        f"[[{LONG}]]",
        f"[train]\n{LONG.replace('.', ' . ')} = 1",
        "[train]\n" + ".".join(['"a"'] * 10_000) + " = 1",
        "[train]\nx = {" + LONG + " = 1}",
    ],
    ids=["key", "table", "array", "spaces", "quotes", "inline"],
)
def test_a_long_dotted_key_is_refused_at_once(text):
    with pytest.raises(ConfigError, match="a dotted key has at most 100 parts"):
        read_text(text)


@pytest.mark.parametrize(
    ("part", "times"),
    [
        ("a", 90_000), ("a.", 45_000), (". ", 45_000), ('"', 90_000), ("a .", 30_000),
        ("'a", 45_000), ("a." * 99 + "=\n", 450), ("a . " * 99 + "=\n", 220), ("[", 90_000),
        ("{", 90_000), ("x=[", 30_000), (" ", 90_000), ("a ", 45_000), ("'\"", 45_000),
    ],
)  # fmt: skip
@pytest.mark.timeout(30)  # each takes well below a second
def test_no_file_of_the_largest_size_takes_long(part, times):
    with suppress(ConfigError):
        read_text(part * times)


def test_numbers_and_file_names_with_dots_are_no_keys():
    many = ", ".join(f"{k}.5" for k in range(500))
    found = read_text(f"[task]\ndata_dir = 'a.b/../c.d.e'\n[train]\nx = [{many}]")
    assert found["task"]["data_dir"] == "a.b/../c.d.e"
    assert len(found["train"]["x"]) == 500


def test_text_that_cannot_be_written_is_refused_in_words():
    settings = {"name": "psmnist", "data_dir": "/data/\udcff"}
    with pytest.raises(ConfigError, match=r"\[task\] data_dir must be text in UTF-8"):
        parse({"task": settings, "model": {"name": "roa-rnn"}})


TABLES = {"filter": FILTERS, "nonlinearity": ACTIVATIONS, "memory": MEMORIES}


@pytest.mark.parametrize("field", TABLES)
@pytest.mark.parametrize("model", ["roa-rnn", "roa-fnn"])
def test_a_name_added_to_a_table_is_known_to_configs(field, model, monkeypatch):
    """The table is the only list of names: a row added from outside needs no second place."""
    tables = {"task": {"name": "adding"}, "model": {"name": model, field: "mine"}}
    with pytest.raises(ConfigError, match=rf"\[model\] {field}: expected one of .*, got 'mine'"):
        parse(tables)
    monkeypatch.setitem(TABLES[field], "mine", next(iter(TABLES[field].values())))
    assert getattr(parse(tables).model, field) == "mine"


def test_a_model_is_built_with_a_filter_from_outside(monkeypatch):
    monkeypatch.setitem(FILTERS, "mine", FILTERS["cycle"])
    mine, cycle = (
        build(parse(read_text(GOOD.replace("rho = 1", f'filter = "{name}"'))))[1].system.rnn
        for name in ("mine", "cycle")
    )
    O, same = (dict(rnn.named_buffers()) for rnn in (mine, cycle))
    assert O
    assert all((value == same[name]).all() for name, value in O.items())


def test_no_name_of_a_table_is_listed_again():
    """A field checked by a table has the type str: a Literal would be a second list."""
    for row in (*TASKS.values(), *MODELS.values()):
        for field in dataclasses.fields(row.config):
            assert "Literal" not in str(field.type), f"{row.config.__name__}.{field.name}"

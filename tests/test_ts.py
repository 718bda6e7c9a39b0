"""Files of the UCR and UEA archives: what is read, and what is said of what cannot be."""

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")
from roann.estimators import RoaClassifier, read_ts

REAL = Path(os.environ.get("ROANN_DATA") or Path(__file__).parents[2] / "shared" / "data") / "ucr"
HEAD = "# words\n\n@problemName Made\n@timeStamps false\n"


def write(tmp_path, text):
    path = tmp_path / "Made_TRAIN.ts"
    path.write_text(text, encoding="utf-8")
    return path


def test_unequal_lengths_channels_and_gaps(tmp_path):
    text = HEAD + "@dimensions 2\n@classLabel true a b\n@DATA\n1,2,?:4,NaN,6:b\n7:8.5e-1:a\n"
    found = read_ts(write(tmp_path, text))
    assert found.name == "Made"
    assert found.classes == ("a", "b")
    assert found.y.tolist() == ["b", "a"]
    np.testing.assert_array_equal(found.X[0], [[1, 4], [2, np.nan], [np.nan, 6]])
    np.testing.assert_array_equal(found.X[1], [[7, 0.85]])


def test_targets_of_a_regression_and_none(tmp_path):
    found = read_ts(write(tmp_path, "@targetlabel true\n@data\n1,2:-0.5\n3,4:2\n"))
    assert found.name == "Made_TRAIN"
    assert found.y.dtype == np.float64
    assert found.y.tolist() == [-0.5, 2.0]
    found = read_ts(write(tmp_path, "@classLabel false\n@univariate false\n@data\n1,2:3,4\n"))
    assert found.y is None
    assert found.X[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2:a\n", r"line 1: expected a line with @ before @data"),
        ("@data\n", r"there is no series after @data"),
        ("@univariate true\n", r"there is no line @data"),
        ("@timeStamps true\n@data\n", r"line 1: time stamps are not read"),
        ("@classLabel true a b\n@data\n1,2:c\n", r"line 3: expected a class of @classLabel"),
        ("@classLabel true a b\n@data\n1,2\n", r"line 3: expected a target"),
        ("@data\n1,2:3\n", r"line 2: expected channels of one length"),
        ("@data\n1,2\n3:4\n", r"line 3: expected 1 channels, got 2"),
        ("@data\n1,two\n", r"line 2: expected a number or \?, got 'two'"),
        ("@data\n1,inf\n", r"line 2: expected finite numbers"),
        ("@dimensions many\n@data\n1\n", r"line 1: expected a whole number after @dimensions"),
    ],
)
def test_a_bad_file_is_one_sentence_with_its_line(tmp_path, text, said):
    with pytest.raises(ValueError, match=said) as error:
        read_ts(write(tmp_path, text))
    assert "\n" not in str(error.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "x.ts"
    path.write_bytes(bytes(range(128, 256)) * 10)
    with pytest.raises(ValueError, match="before @data"):
        read_ts(path)


def test_what_is_read_can_be_fitted(tmp_path):
    rows = "".join(f"{','.join(str(k % p) for k in range(9 + p))}:{p}\n" for p in (2, 3) * 4)
    found = read_ts(write(tmp_path, "@classLabel true 2 3\n@data\n" + rows))
    model = RoaClassifier(hidden_size=8, max_epochs=2, random_state=0).fit(found.X, found.y)
    assert set(model.predict(found.X)) <= {"2", "3"}


@pytest.mark.slow
def test_the_real_files():
    if not REAL.is_dir():
        pytest.skip("the UCR files are not here: set ROANN_DATA")
    found = read_ts(REAL / "JapaneseVowels" / "JapaneseVowels_TRAIN.ts")
    assert (len(found.X), len(found.classes)) == (270, 9)
    assert (min(map(len, found.X)), max(map(len, found.X)), found.X[0].shape[1]) == (7, 26, 12)
    found = read_ts(REAL / "CardanoSentiment" / "CardanoSentiment_TEST.ts")
    assert found.y.dtype == np.float64
    assert {x.shape for x in found.X} == {(24, 2)}

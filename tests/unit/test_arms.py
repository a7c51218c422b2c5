"""Which arm a file belongs to, what an arm is called, and that arms are compared on the same rows only."""

import pandas as pd
import pytest

from fake_results import make_results
from reprolora.arms import arm_names, check_same_rows, method_name, read_arms, read_runs, read_table
from reprolora.errors import UserError
from reprolora.files import read_jsonl, write_json, write_jsonl


@pytest.fixture
def results(tmp_path):
    return make_results(tmp_path, rows=40)


def arms(*rows):
    return pd.DataFrame(rows, columns=["model", "method", "seed", "mode"])


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("qlora", "QLoRA"),
        ("lora-r8", "LoRA-r8"),
        ("my-own", "my-own"),
        ("qlora-fp4", "QLoRA-FP4"),
        ("lora-8bit", "LoRA-8-bit"),
        ("loraplus", "LoRA+"),
        ("full", "full fine-tuning"),
        ("prompt-tuning", "prompt tuning"),
        ("tfidf", "TF-IDF"),
    ],
)
def test_methods_are_spelt_as_in_papers(method, name):
    assert method_name(method) == name


def test_names_say_only_what_differs():
    table = arms(("classical", "tfidf", 0, "classical"), ("m", "lora", 1, "generate"))
    assert arm_names(table) == ["TF-IDF", "LoRA"]
    table = arms(("classical", "tfidf", 0, "classical"), ("m", "lora", 1, "generate"), ("n", "lora", 1, "generate"))
    assert arm_names(table) == ["TF-IDF", "LoRA (m)", "LoRA (n)"]
    table = arms(("m", "lora", 1, "generate"), ("m", "lora", 2, "generate"), ("m", "lora", 2, "likelihood"))
    assert arm_names(table) == ["LoRA (seed 1)", "LoRA (seed 2, generate)", "LoRA (seed 2, likelihood)"]
    assert arm_names(table, drop=["seed"]) == ["LoRA", "LoRA (generate)", "LoRA (likelihood)"]


def test_runs_are_read_with_their_arm(results):
    [run] = read_runs(results.metrics[3])
    assert (run.model, run.method, run.seed, run.mode) == ("smollm2-135m", "lora", 1, "generate")
    assert run.label_names == ("negative", "neutral", "positive")
    assert len(run.ids) == len(run.labels) == len(run.predictions) == 40
    [zero_shot] = read_runs(results.metrics[2])
    assert (zero_shot.predictions == 3).any(), "INVALID answers come after the labels"


def test_answers_that_the_metrics_were_not_made_of_are_refused(results):
    rows = list(read_jsonl(results.predictions[3]))
    write_jsonl(results.predictions[3], [rows[0] | {"raw": "another text, the same prediction"}, *rows[1:]])
    with pytest.raises(UserError, match=r"lora.*predictions.jsonl: not the answers that .*lora.*metrics.json was made"):
        read_runs(results.metrics[3])
    results.predictions[3].unlink()
    with pytest.raises(UserError, match=r"lora.*predictions.jsonl: not the answers"):
        read_runs(results.metrics[3])


def same_rows_error(results, change):
    runs = [run for file in results.metrics for run in read_runs(file)]
    check_same_rows(runs, results.predictions)
    runs[2] = change(runs[2])
    with pytest.raises(UserError) as error:
        check_same_rows(runs, results.predictions)
    assert "zero-shot" in str(error.value) and "majority" in str(error.value)
    return str(error.value)


def replaced(run, **changes):
    return type(run)(**(vars(run) | changes))


def test_arms_with_other_rows_are_refused(results):
    assert "row '99' where" in same_rows_error(results, lambda run: replaced(run, ids=("99", *run.ids[1:])))
    assert "39 rows, but" in same_rows_error(results, lambda run: replaced(run, ids=run.ids[1:]))
    other = same_rows_error(results, lambda run: replaced(run, labels=(run.labels + 1) % 3))
    assert "row '1': its label differs" in other
    assert "its labels are" in same_rows_error(results, lambda run: replaced(run, label_names=("x", "y", "z")))


def test_a_file_that_says_no_arm_is_refused(tmp_path):
    write_json(tmp_path / "x.json", {"modes": {}})
    with pytest.raises(UserError, match=r"x.json: it does not say which arm"):
        read_arms([tmp_path / "x.json"])


def test_a_table_keeps_names_that_look_like_numbers_or_nothing(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("model,method,n\n7,NA,\nnull,nan,3\n")
    table = read_table(file)
    assert table[["model", "method"]].to_numpy().tolist() == [["7", "NA"], ["null", "nan"]]
    assert table["n"].isna().tolist() == [True, False]

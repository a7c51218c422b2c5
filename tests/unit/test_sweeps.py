"""Sweeps and learning curves: what is refused, what candidates are called, what is selected, and what is shown."""

import json
from pathlib import Path

import pandas as pd
import pytest
from test_figures import faults
from test_report import Page, run, write_page

import select_candidates
from fake_results import make_results
from reprolora import plan
from reprolora.arms import ALL_SEEDS, read_all_runs, read_arms
from reprolora.configuration import ConfigurationError, load_configuration
from reprolora.errors import UserError
from reprolora.files import read_json, write_json
from reprolora.learning_curve import draw_learning_curve, learning_curve_table
from reprolora.report.sweep_section import sweep_section
from reprolora.sweeps import LONGEST_NAME, candidate_name

ROOT = Path(__file__).parents[2]
PLACE = "test: experiment.sentiment."


def load(**experiment):
    """The configuration with the experiment `sentiment` changed."""
    return load_configuration(ROOT, [("test", {"experiment": {"sentiment": experiment}})])[0]


def names(**sweep) -> list[str]:
    variants = load(sweep={"methods": ["lora"], **sweep}).variants["sentiment"]
    assert {method for method, _ in variants} == {"lora"}
    return [name for _, name in variants]


# Names


def test_a_grid_makes_every_combination_named_by_its_settings():
    found = names(grid={"training.learning_rate": [1e-4, 0.0005], "method.peft.r": [4, 16]})
    assert found == ["learning_rate=0.0001,r=4", "learning_rate=0.0001,r=16", "learning_rate=0.0005,r=4",
                     "learning_rate=0.0005,r=16"]  # fmt: skip


def test_a_name_does_not_depend_on_order_spelling_or_the_other_values():
    grid = {"method.peft.r": [4, 8], "training.learning_rate": [1e-4]}
    written_otherwise = {"training.learning_rate": ["1e-4"], "method.peft.r": ["16", "8", "4"]}
    assert set(names(grid=grid)) < set(names(grid=written_otherwise))


def test_candidates_can_be_named_one_by_one():
    pairs = [{"method.peft.r": r, "method.peft.lora_alpha": 2 * r} for r in (4, 8)]
    assert names(candidates=pairs) == ["lora_alpha=8,r=4", "lora_alpha=16,r=8"]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("all-linear", "k=all-linear"),
        (["q_proj", "v_proj"], "k=q_proj+v_proj"),
        (True, "k=true"),
        (None, "k=null"),
        (1.0, "k=1"),
        (2e-05, "k=2e-05"),
    ],
)
def test_values_are_written_as_a_reader_would(value, name):
    assert candidate_name({"method.peft.k": value}) == name


def test_what_cannot_stand_in_a_path_has_a_digest_and_stays_distinct():
    patterns = [r".*\.(q|v)_proj", r".*\.(q.v)_proj", "x" * 500, "x" * 501]
    found = [candidate_name({"method.peft.target_modules": pattern}) for pattern in patterns]
    assert len(set(found)) == 4
    assert all("/" not in name and len(name) <= LONGEST_NAME for name in found)
    many = candidate_name({f"method.peft.key_{k}": "x" * 30 for k in range(20)})
    assert len(many) == LONGEST_NAME


# What is refused


@pytest.mark.parametrize(
    ("experiment", "line"),
    [
        ({"sweep": {}}, "sweep: give either grid or candidates"),
        ({"sweep": {"grid": {"method.peft.r": []}}}, "sweep.grid.method.peft.r: list should have at least 1 item after "
         "validation, not 0"),
        ({"sweep": {"grid": {"training.learning_rat": [1]}}}, "sweep.grid.training.learning_rat: cannot be swept; did "
         "you mean 'training.learning_rate'?"),
        ({"sweep": {"grid": {"r": [8]}}}, "sweep.grid.r: cannot be swept; did you mean 'method.peft.r'?"),
        ({"sweep": {"grid": {"split.seed": [1]}}}, "sweep.grid.split.seed: cannot be swept; training.KEY, "
         "method.peft.KEY, method.quantization.KEY and rows can"),
        ({"sweep": {"grid": {"method.peft.lora_alfa": [1]}}}, "sweep.grid.method.peft.lora_alfa.0: PEFT's LORA has no "
         "such key; did you mean 'lora_alpha'?"),
        ({"sweep": {"grid": {"training.epochs": [1, 0]}}}, "sweep.grid.training.epochs.1: input should be greater than "
         "0, but is 0"),
        ({"sweep": {"grid": {"method.peft.r": [8, "many"]}}}, "sweep.grid.method.peft.r.1: should be a whole number at "
         "least 1, but is 'many'"),
        ({"sweep": {"candidates": [{"method.peft.r": 8}, {"method.peft.r": 0}]}}, "sweep.candidates.1.method.peft.r: "
         "should be a whole number at least 1, but is 0"),
        ({"sweep": {"grid": {"training.micro_batch_size": [4, 3]}}}, "sweep.grid: with micro_batch_size=3, training: "
         "micro_batch_size 3 does not divide batch_size 16"),
        ({"sweep": {"grid": {"method.peft.r": [8, 8]}}}, "sweep.grid.method.peft.r: 8 stands twice"),
        ({"sweep": {"grid": {"method.peft.r": [8, "8"]}}}, "sweep.grid: r=8 stands twice"),
        ({"sweep": {"methods": ["tfidf"], "grid": {"method.peft.r": [8]}}}, "sweep.methods.0: 'tfidf' trains "
         "nothing, so there is nothing to sweep"),
        ({"sweep": {"methods": ["lorra"], "grid": {"method.peft.r": [8]}}}, "sweep.methods.0: 'lorra' is not among the "
         "experiment's methods; did you mean 'lora'?"),
        ({"methods": ["majority"], "sweep": {"grid": {"method.peft.r": [8]}}}, "sweep: none of the experiment's "
         "methods can be used here; remove this"),
        ({"learning_curve": {"rows": [50, 2]}}, "learning_curve.rows.1: 2 rows are too few for 3 labels"),
        ({"learning_curve": {"rows": [50, 50]}}, "learning_curve.rows: 50 stands twice"),
        ({"learning_curve": {"methods": ["majority"], "rows": [50]}}, "learning_curve.methods.0: 'majority' learns "
         "nothing from more rows"),
        ({"learning_curve": {"rows": [50]}, "sweep": {"methods": ["lora"], "grid": {"method.peft.r": [8]}}},
         "learning_curve: 'lora' is swept too; give each its own `methods`, or draw the curve in another experiment, "
         "with the settings that the sweep chose"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line_with_its_place(experiment, line):
    with pytest.raises(ConfigurationError) as caught:
        load(**experiment)
    assert caught.value.lines == [PLACE + line]


# From the configuration to arms and settings


def test_candidates_are_arms_whose_settings_differ_in_what_is_swept():
    configuration = load(
        methods=["tfidf", "lora"],
        seeds=[1, 2],
        sweep={"grid": {"method.peft.r": [4], "training.learning_rate": [1e-4], "rows": [100]}},
    )
    candidates = plan.candidates(configuration, "sentiment")
    name = "learning_rate=0.0001,r=4,rows=100"
    folder = f"results/sentiment/smollm2-135m/lora/{name}"
    assert [arm.folder for arm in candidates] == [f"{folder}/seed1", f"{folder}/seed2"]
    settings = plan.train_adapter_settings(configuration, candidates[0])
    [arm] = [a for a in plan.arms(configuration, "sentiment") if a.method == "lora" and a.seed == 1]
    base = plan.train_adapter_settings(configuration, arm)
    base["arm"]["variant"] = name
    base["method"]["peft"]["r"], base["training"]["learning_rate"] = 4, 1e-4
    assert settings == base
    assert plan.variant_of(configuration, candidates[0]).rows == 100
    # The candidate is trained, the arm evaluated; nothing else of the experiment changes.
    stages = [plan.own_stages(configuration, a) for a in (candidates[0], arm)]
    assert stages == [("train_adapter",), ("evaluate_adapter",)]
    assert plan.curve_points(configuration, "sentiment") == []


def test_points_of_a_curve_are_whole_arms_of_adapters_and_of_tfidf():
    configuration = load(seeds=[1, 2], learning_curve={"rows": [25, 50]})
    points = plan.curve_points(configuration, "sentiment")
    assert [str(arm) for arm in points if arm.variant == "rows=25"] == [
        "sentiment/classical/tfidf/rows=25/seed1",
        "sentiment/classical/tfidf/rows=25/seed2",
        "sentiment/smollm2-135m/lora/rows=25/seed1",
        "sentiment/smollm2-135m/lora/rows=25/seed2",
        "sentiment/smollm2-135m/qlora/rows=25/seed1",
        "sentiment/smollm2-135m/qlora/rows=25/seed2",
    ]
    assert {plan.own_stages(configuration, arm) for arm in points} == {
        ("evaluate_classical",),
        ("train_adapter", "evaluate_adapter"),
    }
    assert plan.candidates(configuration, "sentiment") == []


def test_a_sweep_has_failed_when_each_candidate_failed_with_some_seed():
    configuration = load(methods=["lora"], seeds=[1, 2], sweep={"grid": {"method.peft.r": [4, 8]}})
    arms, candidates = plan.arms(configuration, "sentiment"), plan.candidates(configuration, "sentiment")
    four, _, _, eight = candidates
    assert (four.variant, four.seed, eight.variant, eight.seed) == ("r=4", 1, "r=8", 2)
    assert plan.failed_sweeps(arms, candidates, {four}) == {}
    assert plan.failed_sweeps(arms, candidates, {four, eight}) == dict.fromkeys(arms, four)


# Selection


def training(candidate: str, seed: int, loss: float | None, parameters: int = 100, method: str = "lora") -> dict:
    return {
        "arm": {"experiment": "e", "model": "m", "method": method, "seed": seed, "variant": candidate},
        "best_validation_loss": loss,
        "best_step": 7,
        "train_rows": 50,
        "actual": {"trainable_parameters": parameters},
    }


def failure(candidate: str, seed: int) -> dict:
    return {"arm": training(candidate, seed, 0)["arm"], "stage": "train_adapter"}


def selected(trainings, failures=()) -> dict[str, str]:
    table = select_candidates.sweep_table(trainings, failures)
    chosen = table[table["selected"]]
    return dict(zip(chosen["method"], chosen["candidate"], strict=True))


def test_the_least_mean_over_the_seeds_is_selected_for_each_method():
    trainings = [training("a", 1, 0.1), training("a", 2, 0.9), training("b", 1, 0.4), training("b", 2, 0.5)]
    trainings += [training("a", 1, 0.2, method="qlora"), training("b", 1, 0.3, method="qlora")]
    table = select_candidates.sweep_table(trainings, [])
    assert table[["method", "candidate", "seed", "selected"]].to_numpy().tolist() == [
        ["lora", "b", 1, True],
        ["lora", "b", 2, True],
        ["lora", "a", 1, False],
        ["lora", "a", 2, False],
        ["qlora", "a", 1, True],
        ["qlora", "b", 1, False],
    ]
    assert table["mean_validation_loss"].round(9).tolist() == [0.45, 0.45, 0.5, 0.5, 0.2, 0.3]


def test_of_equal_losses_the_smaller_adapter_is_selected_then_the_first_name():
    assert selected([training("a", 1, 0.5, 200), training("b", 1, 0.5, 100)]) == {"lora": "b"}
    assert selected([training("b", 1, 0.5), training("a", 1, 0.5)]) == {"lora": "a"}


def test_a_candidate_that_failed_with_one_seed_is_not_selected():
    trainings = [training("a", 1, 0.1), training("b", 1, 0.4), training("b", 2, 0.5)]
    assert selected(trainings, [failure("a", 2)]) == {"lora": "b"}
    assert selected(trainings[:1], [failure("a", 2)]) == {}


def test_the_script_writes_what_the_plan_reads(tmp_path):
    files = []
    for candidate, loss in (("r=4", 0.3), ("r=8", 0.2)):
        files.append(tmp_path / candidate / "training.json")
        write_json(files[-1], training(candidate, 1, loss))
    output = tmp_path / "sweep.csv"
    run(select_candidates, "--training", *files, "--output", output)
    assert plan.selected_candidate(output, plan.Arm("e", "m", "lora", 1)) == "r=8"
    write_json(files[0], training("r=4", 1, None))
    with pytest.raises(UserError, match=r"r=4/training\.json: no validation loss was measured"):
        run(select_candidates, "--training", *files, "--output", output)


# The report


def test_the_report_says_what_was_tried_and_selected(tmp_path):
    results = make_results(tmp_path, rows=60)
    table = select_candidates.sweep_table([training("r=4", 1, 0.25), training("r=8", 1, 0.5)], [failure("<r>", 1)])
    file = tmp_path / "tables/sweep.csv"
    assert sweep_section(None) is None
    assert "Sweep" not in Page(write_page(results)).text
    table.to_csv(file, index=False)
    text = Page(write_page(results, extra=["--sweep", file])).text
    assert "3 candidates were tried, of which 1 failed. Selected: r=4" in text
    assert "r=4 ✓ selected 0.2500" in text and "<r> failed in train_adapter" in text
    assert "Only its adapter answered the test rows" in text


# The figure


def curve_of(tmp_path, seeds=(1,), modes=("generate",)) -> pd.DataFrame:
    results = make_results(tmp_path, rows=60, seeds=seeds, modes=modes)
    files = [file for file in results.metrics if file.parts[-3] in ("tfidf", "lora", "qlora")]
    contents = read_arms(files)
    points = [json.loads(json.dumps(content)) for content in contents for _ in range(4)]
    for number, content in enumerate(points):
        content["arm"]["variant"] = f"rows={(25, 50, 400, 2400)[number % 4]}"
    runs = read_all_runs([*(file for file in files for _ in range(4)), *files])
    return learning_curve_table(points + contents, runs, 2520)


@pytest.mark.parametrize("case", [{}, {"seeds": (1, 2, 3)}, {"modes": ("generate", "likelihood")}])
def test_the_curve_fits_its_figure(tmp_path, case):
    assert list(faults(draw_learning_curve(curve_of(tmp_path, **case)))) == []


def test_the_seeds_of_a_point_are_pooled(tmp_path):
    table = curve_of(tmp_path, seeds=(1, 2, 3))
    point = table[(table["name"] == "LoRA") & (table["rows"] == 400)]
    assert point["seed"].tolist() == [1, 2, 3, ALL_SEEDS]
    single, pooled = point.iloc[:3], point.iloc[3]
    assert pooled["accuracy"] == pytest.approx(single["accuracy"].mean(), abs=1e-6)
    # The interval of the mean is narrower than that of one seed, but the rows are the same: not by the root of three.
    width = (single["accuracy_high"] - single["accuracy_low"]).mean()
    assert width / 3**0.5 < pooled["accuracy_high"] - pooled["accuracy_low"] < width
    assert (table.loc[table["name"] == "TF-IDF", "seed"] != ALL_SEEDS).all()


def test_a_curve_runs_from_few_rows_to_all(tmp_path):
    table = curve_of(tmp_path)
    assert list(dict.fromkeys(table["name"])) == ["TF-IDF", "LoRA", "QLoRA"]
    assert table.loc[table["name"] == "LoRA", "rows"].tolist() == [25, 50, 400, 2400, 2520]
    metrics = read_json(tmp_path / "smollm2-135m/lora/seed1/metrics.json")["modes"]["generate"]
    last = table[table["name"] == "LoRA"].iloc[-1]
    assert (last["accuracy"], last["macro_f1_low"]) == (metrics["accuracy"], metrics["macro_f1_low"])
    figure = draw_learning_curve(table)
    lora = figure.axes[0].get_lines()[1]
    assert lora.get_xdata().tolist() == [25, 50, 400, 2400, 2520]
    # 2,400 is too near to 2,520 to have a label of its own.
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["25", "50", "400", "2,520"]

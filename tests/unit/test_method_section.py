"""The method section and the bibliography: that they say what the settings say, for any mix of methods."""

import json
import re
from pathlib import Path

import pytest
import yaml

from fake_results import FakeMethod, make_results
from reprolora.bibliography import bibliography, entries, key_of
from reprolora.files import read_json
from reprolora.report.method_section import method_section

LORA = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
OTHERS = {
    "dora": {"peft": LORA | {"use_dora": True}},
    "rslora": {"peft": LORA | {"use_rslora": True}},
    "pissa": {"peft": LORA | {"init_lora_weights": "pissa_niter_4"}},
    "loraplus": {"peft": LORA, "loraplus_lr_ratio": 16.0, "learning_rate": 1e-4},
    "ia3": {"peft": {"peft_type": "IA3"}},
    "prompt-tuning": {"peft": {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 20}},
    "lora-8bit": {"peft": LORA, "quantization": {"load_in_8bit": True}},
    "qlora-fp4": {
        "peft": LORA,
        "quantization": NF4 | {"bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False},
    },
    "vera": {"peft": {"peft_type": "VERA", "vera_dropout": 0.1}},
}
KEYS = {
    "dora": "liu2024dora",
    "rslora": "kalajdzievski2023rslora",
    "pissa": "meng2024pissa",
    "loraplus": "hayou2024loraplus",
    "ia3": "liu2022ia3",
    "prompt-tuning": "lester2021prompt",
    "lora-8bit": "dettmers2022int8",
    "qlora-fp4": "dettmers2023qlora",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return make_results(tmp_path_factory.mktemp("results"), rows=40)


def section(results, methods=None, **experiment) -> str:
    settings = json.loads(json.dumps(results.settings))
    settings["experiment"] |= experiment
    if methods is not None:
        empty = {"description": "A method", "peft": None, "quantization": None, "baseline": None}
        settings["methods"] = {name: empty | method for name, method in methods.items()}
    trainings = [read_json(file) for file in results.trainings]
    paragraphs = method_section(settings, read_json(results.split), trainings)
    text = "\n".join(paragraphs)
    cited = set(re.findall(r"@([\w-]+)", text))
    found = {key_of(entry) for entry in bibliography(settings).split("\n\n")}
    assert cited <= found, "every citation has its entry"
    assert "None" not in text and "  " not in text, text
    return text


def test_it_says_what_the_settings_say(results):
    text = section(results)
    for said in (
        "4,200 tweets",
        "[@hutto2014vader], labelled negative, neutral and positive. We split the rows at random (seed 1) into 120 "
        "training, 40 validation and 40 test rows",
        "the system turn “You label the sentiment of tweets.",
        "LoRA: LoRA [@hu2022lora] with rank 16, alpha 32, dropout 0, on all linear layers;",
        "QLoRA: LoRA [@hu2022lora; @dettmers2023qlora] with rank 16, alpha 32, dropout 0, on all linear layers, over a "
        "base quantized to 4-bit NormalFloat with double quantization [@dettmers2022bitsandbytes].",
        "trained for 1 epoch",
        "batches of 16 rows and gradients clipped to a norm of 1; the learning rate rises over the first 10 % of the "
        "steps to 0.0005 and falls linearly to zero",
        "the longest allowed has 256 tokens",
        "computes in bf16, the adapter's weights are fp32",
        "measured 2 times an epoch",
        "trained once, with seed 1.",
        "greedily with at most 4 tokens",
        "Baselines are the commonest class of the training rows; logistic regression on TF-IDF",
        "(2,000 resamples)",
    ):
        assert said in text, said
    assert "likelihood" not in text and "hierarchical" not in text and "checkpointed" not in text


def test_other_settings_are_said_otherwise(results):
    training = results.settings["experiment"]["training"]
    training = training | {"warmup_fraction": 0.0, "scheduler": "cosine", "epochs": 2.5, "gradient_checkpointing": True}
    text = section(
        results, training=training, seeds=[1, 2, 5], evaluation={"modes": ["likelihood"], "max_new_tokens": 4}
    )
    for said in (
        "trained for 2.5 epochs",
        "starts at 0.0005 and falls along a cosine",
        "Activations are checkpointed.",
        "3 times, with the seeds 1, 2 and 5.",
        "By likelihood, the answer is the label",
        "a hierarchical bootstrap over seeds and rows and a t test",
    ):
        assert said in text, said
    assert "greedily" not in text


@pytest.mark.parametrize("name", OTHERS)
def test_every_kind_of_adapter_is_described_and_cited(results, name):
    text = section(results, {name: OTHERS[name]})
    for key, value in OTHERS[name]["peft"].items():
        if key not in ("peft_type", "target_modules"):
            assert re.search(rf"\b{value}\b", text), f"{key} is not said"
    if name in KEYS:
        assert f"@{KEYS[name]}" in text
    assert "Baseline" not in text


def test_few_shot_and_no_adapter_at_all(results):
    text = section(results, {"few-shot": {"baseline": "few-shot", "shots": 6}})
    assert "The baseline is the base model as it is, asked after 6 training rows with their labels." in text
    assert "PEFT" not in text and "fresh process" not in text


def test_the_datasets_own_splits_and_limits(tmp_path):
    results = make_results(tmp_path, rows=40, methods={"lora": FakeMethod(0.8)})
    split = read_json(results.split)
    split |= {"fixed": ["train", "test"], "before_limits": {name: {"a": 500} for name in split["counts"]}}
    text = method_section(results.settings, split, [])[0]
    assert (
        "We kept the dataset's own training and test rows and used 120 training, 40 validation and 40 test rows" in text
    )
    assert "drawn from 500 training, 500 validation and 500 test rows" in text


def test_the_bibliography_has_what_was_used_and_nothing_else(results):
    keys = [key_of(entry) for entry in bibliography(results.settings).split("\n\n")]
    assert len(keys) == len(set(keys)) and None not in keys
    assert {"hutto2014vader", "hu2022lora", "dettmers2023qlora", "wolf2020transformers", "codecarbon"} <= set(keys)
    assert {"liu2024dora", "liu2022ia3", "dettmers2022int8"} & set(keys) == set()
    classical = results.settings | {"models": {}, "methods": {"tfidf": results.settings["methods"]["tfidf"]}}
    keys = {key_of(entry) for entry in bibliography(classical).split("\n\n")}
    assert "pedregosa2011sklearn" in keys and {"ansel2024pytorch", "mangrulkar2022peft", "hu2022lora"} & keys == set()


def test_the_maintained_entries_are_well_formed():
    citation = yaml.safe_load((Path(__file__).parents[2] / "CITATION.cff").read_text())
    assert f"version = {{{citation['version']}}}" in entries()["reprolora"]
    assert len(entries()) > 20
    for key, entry in entries().items():
        assert entry.count("{") == entry.count("}"), key
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", entry, re.MULTILINE))
        assert {"title", "author"} <= fields.keys() and len(fields) == entry.count("\n") - 1, key
        if not entry.startswith("@software"):
            assert fields["year"] in key, key

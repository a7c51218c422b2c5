"""The method section of a paper about an experiment, from its resolved settings and what its runs recorded.

Plain text with citations in square brackets, [@key]; the keys are those of references.bib.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reprolora.arms import method_name
from reprolora.bibliography import key_of, method_keys
from reprolora.metrics import RESAMPLES

SPLITS = {"train": "training", "validation": "validation", "test": "test"}
SCHEDULES = {"linear": "falls linearly to zero", "cosine": "falls along a cosine to zero", "constant": "stays there"}
# PEFT's keys that every reader knows by these words; any other is given as it is.
PEFT_WORDS = {"r": "rank {}", "lora_alpha": "alpha {}", "lora_dropout": "dropout {}", "num_virtual_tokens": "{} tokens"}
TARGETS = {"all-linear": "on all linear layers"}
NOT_CUT = "No row is cut: the longest allowed has {} tokens."
BASELINES = {
    "majority": "the commonest class of the training rows",
    "tfidf-logistic-regression": "logistic regression on TF-IDF features of words and word pairs, its strength chosen "
    "by cross-validation of the training rows [@pedregosa2011sklearn]",
    "zero-shot": "the base model as it is, asked with the same prompt",
    "few-shot": "the base model as it is, asked after {shots} training rows with their labels",
}


def method_section(settings: Mapping[str, Any], split: Mapping[str, Any], trainings: Sequence[Mapping]) -> list[str]:
    """The paragraphs.

    Args:
        settings: the experiment's settings, as the report has them.
        split: the content of the split's summary.json.
        trainings: the content of each training.json.
    """
    paragraphs = [_data(settings, split)]
    if settings["models"]:
        paragraphs.append(_prompt(settings))
    adapters = {name: method for name, method in settings["methods"].items() if method["peft"]}
    if adapters:
        paragraphs += [adapters_trained(settings, adapters), training_run(settings, adapters, trainings)]
    baselines = [method for method in settings["methods"].values() if method["baseline"]]
    if baselines:
        paragraphs.append(_baselines(baselines))
    if settings["models"]:
        paragraphs.append(_evaluation(settings["experiment"]["evaluation"], bool(adapters)))
    return [*paragraphs, _statistics(settings, adapters)]


def _data(settings: Mapping[str, Any], split: Mapping[str, Any]) -> str:
    dataset = settings["dataset"]
    sizes = listed([f"{split['rows'][name]:,} {word}" for name, word in SPLITS.items()])
    how = f"We split the rows at random (seed {split['seed']}) into {sizes} rows"
    if split["fixed"]:
        parts = listed([SPLITS[name] for name in SPLITS if name in split["fixed"]])
        how = f"We kept the dataset's own {parts} rows and used {sizes} rows (seed {split['seed']})"
    text = f"The data are {inline(dataset['description'])}{cite(dataset)}, labelled {listed(dataset['labels'])}. {how}"
    text += ", with the labels in proportion; rows whose texts are equal but for case and white space are never in two "
    text += "splits."
    if split["before_limits"] != split["counts"]:
        before = [f"{sum(split['before_limits'][name].values()):,} {word}" for name, word in SPLITS.items()]
        text += f" These are drawn from {listed(before)} rows."
    return text


def _prompt(settings: Mapping[str, Any]) -> str:
    models = listed([f"{model['description'].rstrip('.')}{cite(model)}" for model in settings["models"].values()])
    prompt = settings["experiment"]["prompt"]
    turns = [f"the {role} turn “{prompt[role]}”" for role in ("system", "user") if prompt.get(role)]
    text = (
        f"The base {'model is' if len(settings['models']) == 1 else 'models are'} {models}. Every row becomes a chat "
    )
    return text + f"in the model's own template, with {listed(turns)}, and is to be answered with the label alone."


def adapters_trained(settings: Mapping[str, Any], adapters: Mapping[str, Mapping]) -> str:
    """Which adapters there are, with what belongs to each."""
    text = "We train these adapters with PEFT [@mangrulkar2022peft]: "
    return text + "; ".join(f"{method_name(name)}: {_recipe(method)}" for name, method in adapters.items()) + "."


def _recipe(method: Mapping[str, Any]) -> str:
    peft = dict(method["peft"])
    kind = {"LORA": "LoRA", "PROMPT_TUNING": "prompt tuning"}.get(peft["peft_type"], peft["peft_type"])
    parts = []
    for key, value in peft.items():
        if key == "target_modules":
            where = listed(value) if isinstance(value, list) else value
            parts.append(TARGETS.get(where, f"on {where}"))
        elif key != "peft_type":
            parts.append(PEFT_WORDS.get(key, key + " = {}").format(_value(value)))
    text = f"{kind}{_keys(method_keys(method))}" + (f" with {', '.join(parts)}" if parts else "")
    if quantization := method["quantization"]:
        text += f", over a base quantized to {_quantized(quantization)} [@dettmers2022bitsandbytes]"
    for key, words in (("learning_rate", "a learning rate of"), ("loraplus_lr_ratio", "a ratio of B's rate to A's of")):
        if method.get(key):
            text += f", {words} {_value(method[key])}"
    return text


def _quantized(quantization: Mapping[str, Any]) -> str:
    if not quantization.get("load_in_4bit"):
        return "8-bit integers"
    kind = {"nf4": "4-bit NormalFloat"}.get(quantization.get("bnb_4bit_quant_type"), "4-bit floats")
    twice = "with" if quantization.get("bnb_4bit_use_double_quant") else "without"
    return f"{kind} {twice} double quantization"


def training_run(
    settings: Mapping[str, Any], adapters: Mapping[str, Mapping], trainings: Sequence[Mapping], cut: str = NOT_CUT
) -> str:
    """How adapters are trained; `cut` says what becomes of long rows, where `{}` is the longest length."""
    training, seeds = settings["experiment"]["training"], settings["experiment"]["seeds"]
    epochs = training["epochs"]
    decay, warm_up = _value(training["weight_decay"]), training["warmup_fraction"]
    rise = f"rises over the first {warm_up:.0%} of the steps to".replace("%", " %") if warm_up else "starts at"
    text = (
        f"Adapters are trained for {_value(epochs)} {'epoch' if epochs == 1 else 'epochs'} with TRL "
        "[@vonwerra2020trl], on the tokens of the answer and of the end of the turn only, with cross-entropy. "
        f"The optimizer is AdamW [@loshchilov2019adamw] with a weight decay of {decay}, batches of "
        f"{training['batch_size']} rows and gradients clipped to a norm of {_value(training['max_grad_norm'])}; "
        f"the learning rate {rise} {_value(training['learning_rate'])} and {SCHEDULES[training['scheduler']]}. "
        f"{cut.format(training['max_length'])} "
    )
    if training["gradient_checkpointing"]:
        text += "Activations are checkpointed. "
    chosen = sorted({run["precision"]["chosen"] for run in trainings})
    if chosen:
        kept = sorted({run["actual"]["adapter_dtype"] for run in trainings})
        text += f"The base model computes in {listed(chosen)}, the adapter's weights are {listed(kept)}. "
    times = training["evaluations_per_epoch"]
    text += (
        f"The loss on the validation rows is measured {'once' if times == 1 else f'{times} times'} an epoch, and the "
        "adapter with the least is kept; test rows take no part in any choice. "
    )
    return text + (
        f"Each method is trained once, with seed {seeds[0]}."
        if len(seeds) == 1
        else f"Each method is trained {len(seeds)} times, with the seeds {listed(seeds)}."
    )


def _baselines(baselines: Sequence[Mapping]) -> str:
    words = [BASELINES.get(b["baseline"], b["baseline"]).format(shots=b.get("shots")) for b in baselines]
    return f"{'Baselines are' if len(words) > 1 else 'The baseline is'} {'; '.join(words)}."


def _evaluation(evaluation: Mapping[str, Any], with_adapters: bool) -> str:
    sentences = []
    if with_adapters:
        sentences.append(
            "Every adapter is evaluated in a fresh process that loads it from disk and must first give the answers "
            "that the trained model gave."
        )
    if "generate" in evaluation["modes"]:
        sentences.append(
            f"Answers are generated greedily with at most {evaluation['max_new_tokens']} tokens; the first line must "
            "name exactly one label as a whole word, or the answer is INVALID, which counts as wrong."
        )
    if "likelihood" in evaluation["modes"]:
        sentences.append("By likelihood, the answer is the label to which the model gives the highest probability.")
    return " ".join(sentences)


def _statistics(settings: Mapping[str, Any], adapters: Mapping[str, Mapping]) -> str:
    text = (
        "We report accuracy with Wilson's 95 % interval [@wilson1927interval] and macro-F1 with a bootstrap interval "
        f"over the test rows ({RESAMPLES:,} resamples) [@efron1979bootstrap]. Methods are compared on the same rows, "
        "with a paired bootstrap interval and McNemar's exact test [@mcnemar1947test]"
    )
    if adapters and len(settings["experiment"]["seeds"]) > 1:
        text += ", or, where a method has several seeds, a hierarchical bootstrap over seeds and rows and a t test"
    text += "; p-values are corrected by Holm's method [@holm1979correction] over all comparisons of the experiment. "
    return text + "Everything is run by Reprolora [@reprolora] on Snakemake [@molder2021snakemake]."


def cite(entry: Mapping[str, Any]) -> str:
    """The citation of a dataset or a model, after a space; nothing where it has none."""
    key = key_of(entry["citation"] or "")
    return _keys([key] if key else [])


def _keys(keys: Sequence[str]) -> str:
    return f" [{'; '.join(f'@{key}' for key in keys)}]" if keys else ""


def inline(text: str) -> str:
    """A text within a sentence."""
    return " ".join(text.split()).rstrip(".")


def listed(words: Sequence[Any]) -> str:
    """Words as a list in a sentence."""
    words = [str(word) for word in words]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _value(value: Any) -> str:
    """A number without needless digits, in the form that a person writes."""
    return f"{value:g}" if isinstance(value, float) else str(value)

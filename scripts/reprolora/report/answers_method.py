"""The method section of a paper about an instruction experiment; see `method_section`."""

from collections.abc import Mapping, Sequence
from typing import Any

from reprolora.metrics import RESAMPLES
from reprolora.report.method_section import SPLITS, adapters_trained, cite, inline, listed, training_run

TEMPLATES = {
    "chat": "the model's own chat template",
    "alpaca": "the English Alpaca template",
    "alpaca-zh": "the Chinese Alpaca template",
}
GENERATORS = {
    "headings": "from the documents' headings by rules, without a language model; answers are the text under them",
    "openai": "by the language model {model} through an interface with OpenAI's protocol",
    "local": "by the language model {model}, run locally",
}
CUT = "Rows longer than {} tokens lose the end of their answer in training, and are counted."


def answers_method(
    settings: Mapping[str, Any],
    dataset: Mapping[str, Any],
    split: Mapping[str, Any],
    trainings: Sequence[Mapping],
    by_document: bool,
) -> list[str]:
    """The paragraphs.

    Args:
        settings: the experiment's settings, as the report has them.
        dataset: the content of the dataset's manifest.
        split: the content of the split's summary.json.
        trainings: the content of each training.json.
        by_document: whether intervals are over documents.
    """
    paragraphs = [_data(settings, dataset), _split(split), _prompt(settings)]
    adapters = {name: method for name, method in settings["methods"].items() if method["peft"]}
    if adapters:
        paragraphs += [adapters_trained(settings, adapters), training_run(settings, adapters, trainings, CUT)]
    return [*paragraphs, _evaluation(settings, bool(adapters)), _statistics(settings, by_document)]


def _data(settings: Mapping[str, Any], dataset: Mapping[str, Any]) -> str:
    entry = settings["dataset"]
    text = f"The data are {inline(entry['description'])}{cite(entry)}. "
    if "documents" not in dataset:
        return text + f"There are {dataset['rows'].get('all', sum(dataset['rows'].values())):,} rows."
    how = GENERATORS[entry["generator"]["kind"]].format(model=entry["generator"].get("model"))
    text += (
        f"{dataset['documents']['documents']:,} documents were cut at their headings into "
        f"{dataset['chunks']['chunks']:,} chunks of at most {dataset['chunks']['max_tokens']:,} tokens, and "
        f"{dataset['pairs']['pairs']:,} questions with answers were made of them {how}. "
    )
    review = dataset["review"]
    if review["skipped"]:
        return text + "No person reviewed them."
    return text + (
        f"A person reviewed {review['reviewed']:,} of them, of which {review['accepted']:,} passed as they were; "
        "edited ones were taken as edited, and rejected ones left out."
    )


def _split(split: Mapping[str, Any]) -> str:
    sizes = listed([f"{split['rows'][name]:,} {word}" for name, word in SPLITS.items()])
    whole = {"pair": "", "chunk": "whole chunks at a time, ", "document": "whole documents at a time, "}[split["group"]]
    return (
        f"We split the rows {whole}by a seeded hash (seed {split['seed']}) into {sizes} rows; rows with the same "
        "instruction and input, but for case and white space, are never in two splits."
    )


def _prompt(settings: Mapping[str, Any]) -> str:
    models = listed([f"{inline(model['description'])}{cite(model)}" for model in settings["models"].values()])
    prompt = settings["experiment"]["prompt"]
    system = f", with the system message “{prompt['system']}”" if prompt["system"] else ""
    return (
        f"The base {'model is' if len(settings['models']) == 1 else 'models are'} {models}. Every instruction is put "
        f"into {TEMPLATES[prompt['template']]}{system}, by the same code in training and in evaluation."
    )


def _evaluation(settings: Mapping[str, Any], with_adapters: bool) -> str:
    answers = settings["experiment"]["answers"]
    text = (
        "Every adapter is evaluated in a fresh process that loads it from disk and must first give what the trained "
        "model gave. "
        if with_adapters
        else ""
    )
    return text + (
        f"For domain accuracy, the reference answer stands against {answers['distractors']} answers to other questions "
        f"about the same document, drawn once (seed {answers['choice_seed']}); the model is right when the reference "
        "has the highest mean log-probability per token. Questions whose document has not so many take no part. "
        f"Answers are generated greedily with at most {answers['max_new_tokens']} tokens and compared with the "
        "reference by exact match, token F1 [@rajpurkar2016squad], ROUGE-L [@lin2004rouge] and chrF "
        "[@popovic2015chrf; @post2018sacrebleu]. The loss is that of the references, in nats per token; "
        "perplexity is its exponential."
    )


def _statistics(settings: Mapping[str, Any], by_document: bool) -> str:
    units = (
        "Questions about one document depend on each other, so the bootstrap draws documents"
        if by_document
        else "The bootstrap draws rows"
    )
    text = (
        f"{units} ({RESAMPLES:,} resamples) [@efron1979bootstrap], the same for every arm; "
        + ("its intervals are widened by Student's quantile for few documents. " if by_document else "")
        + "Domain accuracy and exact match of one arm have Wilson's interval [@wilson1927interval]"
        + (" with the effective number of rows. " if by_document else ". ")
    )
    if len(settings["experiment"]["seeds"]) > 1:
        text += "Several seeds are pooled by a hierarchical bootstrap over seeds as well, and compared by a t test. "
    exact = (
        "an exact test that exchanges two arms' answers to whole documents (McNemar's, were every row a document)"
        if by_document
        else "McNemar's exact test"
    )
    return text + (
        f"Domain accuracies of two arms are compared on the same rows by {exact} [@mcnemar1947test], with p-values "
        "corrected by Holm's method [@holm1979correction] over all comparisons of the experiment; other scores have "
        "paired intervals. Everything is run by Reprolora [@reprolora] on Snakemake [@molder2021snakemake]."
    )

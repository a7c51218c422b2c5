"""The model card of an adapter: PEFT's metadata, with the data, the scores and their intervals, and the settings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCardData

from reprolora.arms import method_name
from reprolora.licences import card_licence
from reprolora.sources import parse_source

TEMPLATE = Path(__file__).parent / "templates" / "model_card.md.jinja"
# The measures of a card, by their names on the hub; the last ones have no interval.
MEASURES = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro-F1",
    "weighted_f1": "Weighted F1",
    "invalid_rate": "INVALID answers",
}


@dataclass(frozen=True)
class Measured:
    """One score of an adapter, with its 95 % interval where it has one."""

    key: str
    name: str
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Scores:
    """What an adapter scored on `n` test rows in one mode; the `details` are for readers alone."""

    mode: str
    n: int
    measured: Sequence[Measured]
    details: Sequence[Measured] = ()


def model_card(
    settings: Mapping[str, Any], training: Mapping[str, Any], metrics: Mapping[str, Any], template: str
) -> str:
    """The card of an adapter that labels texts; `metrics` is the content of its metrics.json (see `render_card`)."""
    scores = [_scores(mode, found) for mode, found in metrics["modes"].items()]
    return render_card(settings, training, scores, metrics["split"], "text-classification", template)


def render_card(
    settings: Mapping[str, Any],
    training: Mapping[str, Any],
    scores: Sequence[Scores],
    split: str,
    task: str,
    template: str,
) -> str:
    """The card's text.

    Args:
        settings: the entries `experiment`, `dataset` and `model` of the configuration, each with its `name`.
        training: the content of training.json.
        scores: what the adapter scored, by mode.
        split: the split that was scored.
        task: the hub's name of the task.
        template: the text of the card's Jinja2 template.
    """
    arm, model, dataset = training["arm"], settings["model"], settings["dataset"]
    title = (
        f"{method_name(arm['method'])} of {arm['model']} for “{settings['experiment']['title']}”, seed {arm['seed']}"
    )
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["indented"] = lambda text: "\n".join(f"    {line}".rstrip() for line in text.splitlines())
    return environment.from_string(template).render(
        card_data=card_data(settings, training, scores, split, task).to_yaml(),
        task=task,
        title=_one_line(title),
        summary=_one_line(settings["experiment"]["question"]),
        model={key: _one_line(value) if isinstance(value, str) else value for key, value in model.items()},
        dataset={key: _one_line(value) if isinstance(value, str) else value for key, value in dataset.items()},
        training=training,
        results=[{"mode": one.mode, "n": one.n, "rows": list(_rows(one))} for one in scores],
        settings=list(_settings(training)),
        citations=[entry["citation"].strip() for entry in (dataset, model) if entry["citation"]],
    )


def card_data(
    settings: Mapping[str, Any], training: Mapping[str, Any], scores: Sequence[Scores], split: str, task: str
) -> ModelCardData:
    """The card's metadata as the hub reads it: what PEFT says of an adapter, and the scores as a model index."""
    arm, model, dataset = training["arm"], settings["model"], settings["dataset"]
    source = parse_source(model["source"])
    peft = training["settings"]["method"]["peft"]
    results = [
        EvalResult(
            task_type=task,
            dataset_type=dataset["name"],
            dataset_name=dataset["description"],
            dataset_split=split,
            metric_type=it.key,
            metric_name=it.name + (f" ({one.mode})" if len(scores) > 1 else ""),
            metric_value=it.value,
            metric_args={"rows": one.n} | ({"interval_95": list(it.interval)} if it.interval else {}),
        )
        for one in scores
        for it in one.measured
    ]
    return ModelCardData(
        # A model of the hub is linked; any other is named in the text.
        base_model=source.name if source.kind == "hf" else None,
        library_name="peft" if peft else "transformers",
        pipeline_tag="text-generation",
        **card_licence(model["license"]),
        tags=sorted({peft["peft_type"].lower() if peft else "full-fine-tuning", "transformers", task}),
        model_name=f"{arm['experiment']}-{arm['model']}-{arm['method']}-seed{arm['seed']}",
        eval_results=results,
    )


def _scores(mode: str, found: Mapping[str, Any]) -> Scores:
    measured = [
        Measured(key, name, found[key], (found[f"{key}_low"], found[f"{key}_high"]) if f"{key}_low" in found else None)
        for key, name in MEASURES.items()
    ]
    of_classes = [Measured("f1", f"F1 of {_cell(label)}", scores["f1"]) for label, scores in found["per_class"].items()]
    return Scores(mode, found["n"], measured, of_classes)


def _rows(scores: Scores) -> Iterator[dict[str, str]]:
    """The scores as rows of a table."""
    for it in (*scores.measured, *scores.details):
        interval = " to ".join(f"{end:.3f}" for end in it.interval) if it.interval else ""
        yield {"name": it.name, "value": f"{it.value:.3f}", "interval": interval}


def _settings(training: Mapping[str, Any]):
    method = training["settings"]["method"]
    for values in (method["peft"] or {"full": True}, method["quantization"] or {}, training["settings"]["training"]):
        for key, value in values.items():
            yield key, f"`{_cell(value)}`"
    yield "seed", f"`{training['arm']['seed']}`"


def _cell(value: Any) -> str:
    """A value within a row of a Markdown table."""
    return _one_line(str(value)).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())

"""The model card of an adapter: PEFT's metadata, with the data, the scores and their intervals, and the settings."""

from collections.abc import Mapping
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCardData

from reprolora.arms import method_name
from reprolora.licences import card_licence
from reprolora.sources import parse_source

# The measures of a card, by their names on the hub; the last ones have no interval.
MEASURES = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro-F1",
    "weighted_f1": "Weighted F1",
    "invalid_rate": "INVALID answers",
}


def model_card(
    settings: Mapping[str, Any], training: Mapping[str, Any], metrics: Mapping[str, Any], template: str
) -> str:
    """The card's text.

    Args:
        settings: the entries `experiment`, `dataset` and `model` of the configuration, each with its `name`.
        training: the content of training.json.
        metrics: the content of metrics.json.
        template: the text of the card's Jinja2 template.
    """
    arm, model, dataset = training["arm"], settings["model"], settings["dataset"]
    title = (
        f"{method_name(arm['method'])} of {arm['model']} for “{settings['experiment']['title']}”, seed {arm['seed']}"
    )
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["indented"] = lambda text: "\n".join(f"    {line}".rstrip() for line in text.splitlines())
    return environment.from_string(template).render(
        card_data=card_data(settings, training, metrics).to_yaml(),
        title=_one_line(title),
        summary=_one_line(settings["experiment"]["question"]),
        model={key: _one_line(value) if isinstance(value, str) else value for key, value in model.items()},
        dataset={key: _one_line(value) if isinstance(value, str) else value for key, value in dataset.items()},
        training=training,
        results=[
            {"mode": mode, "scores": scores, "rows": list(_rows(scores))} for mode, scores in metrics["modes"].items()
        ],
        settings=list(_settings(training)),
        citations=[entry["citation"].strip() for entry in (dataset, model) if entry["citation"]],
    )


def card_data(settings: Mapping[str, Any], training: Mapping[str, Any], metrics: Mapping[str, Any]) -> ModelCardData:
    """The card's metadata as the hub reads it: what PEFT says of an adapter, and the scores as a model index."""
    arm, model, dataset = training["arm"], settings["model"], settings["dataset"]
    source = parse_source(model["source"])
    peft = training["settings"]["method"]["peft"]
    results = []
    for mode, scores in metrics["modes"].items():
        for measure in MEASURES:
            interval = _interval(scores, measure)
            results.append(
                EvalResult(
                    task_type="text-classification",
                    dataset_type=dataset["name"],
                    dataset_name=dataset["description"],
                    dataset_split=metrics["split"],
                    metric_type=measure,
                    metric_name=MEASURES[measure] + (f" ({mode})" if len(metrics["modes"]) > 1 else ""),
                    metric_value=scores[measure],
                    metric_args={"rows": scores["n"]} | ({"interval_95": list(interval)} if interval else {}),
                )
            )
    return ModelCardData(
        # A model of the hub is linked; any other is named in the text.
        base_model=source.name if source.kind == "hf" else None,
        library_name="peft" if peft else "transformers",
        pipeline_tag="text-generation",
        **card_licence(model["license"]),
        tags=sorted({peft["peft_type"].lower() if peft else "full-fine-tuning", "transformers", "text-classification"}),
        model_name=f"{arm['experiment']}-{arm['model']}-{arm['method']}-seed{arm['seed']}",
        eval_results=results,
    )


def _interval(scores: Mapping[str, Any], measure: str) -> tuple[float, float] | None:
    return (scores[f"{measure}_low"], scores[f"{measure}_high"]) if f"{measure}_low" in scores else None


def _rows(scores: Mapping[str, Any]):
    """The measures as rows of a table, then the F1 of each class."""
    for measure, name in MEASURES.items():
        interval = _interval(scores, measure)
        text = " to ".join(f"{end:.3f}" for end in interval) if interval else ""
        yield {"name": name, "value": f"{scores[measure]:.3f}", "interval": text}
    for label, of_class in scores["per_class"].items():
        yield {"name": f"F1 of {_cell(label)}", "value": f"{of_class['f1']:.3f}", "interval": ""}


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

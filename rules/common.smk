"""What the rules share: the configuration, the arms, and the helpers that name inputs, settings and resources."""

import gc
import os
import re
import sys
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path

# At the end of the path, so that no module of ours hides an installed one.
sys.path.append(str(Path(workflow.basedir) / "scripts"))

from reprolora import plan
from reprolora.configuration import CLASSICAL, load_configuration, read_yaml
from reprolora.documents import list_files
from reprolora.errors import UserError
from reprolora.files import canonical_json, sha256_of
from reprolora.imports import import_closure
from reprolora.sources import parse_source
from reprolora.tracking import check_tracker

# Planning makes objects by the hundred thousand and drops few: to look for garbage at every 700 takes a sixth of its time.
gc.set_threshold(100_000)

# The project's folder as seen from the working directory: relative paths stay the same when both move together.
PROJECT = Path(os.path.relpath(workflow.basedir))


def load():
    """The checked configuration; anything wrong in it ends the run here, in one line, before any job."""
    overrides = []
    try:
        for file in workflow.config_settings.configfiles:
            name = os.path.relpath(file)
            overrides.append((name, read_yaml(Path(file), name)))
        overrides.append(("--config", workflow.config_settings.config))
        configuration, warnings = load_configuration(Path(workflow.basedir), overrides)
        # With --sdm conda, trainings have an environment of their own, and look for themselves.
        if not workflow.deployment_settings.deployment_method:
            check_tracker(configuration.tracking)
    except UserError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(2)
    if workflow.is_main_process:
        for line in warnings:
            print(f"warning: {line}", file=sys.stderr)
    return configuration


CONFIGURATION = load()
EXPERIMENTS = {name: CONFIGURATION.experiment[name] for name in CONFIGURATION.experiments}
LABEL_EXPERIMENTS = [name for name, experiment in EXPERIMENTS.items() if experiment.task == "classification"]
INSTRUCTION_EXPERIMENTS = [name for name, experiment in EXPERIMENTS.items() if experiment.task == "instruction"]
JUDGED_EXPERIMENTS = [name for name in INSTRUCTION_EXPERIMENTS if EXPERIMENTS[name].answers.judge]
ARMS = {name: plan.arms(CONFIGURATION, name) for name in EXPERIMENTS}
# What a sweep chooses from, and the points of learning curves: arms that no table of an experiment's arms has.
CANDIDATES = {name: plan.candidates(CONFIGURATION, name) for name in EXPERIMENTS}
CURVE_POINTS = {name: plan.curve_points(CONFIGURATION, name) for name in EXPERIMENTS}
ALL_ARMS = list(chain(*ARMS.values(), *CANDIDATES.values(), *CURVE_POINTS.values()))
FAILURES = {arm: failure for arm in ALL_ARMS if (failure := plan.failure(CONFIGURATION, arm))}
FAILED_SWEEPS = plan.failed_sweeps(chain(*ARMS.values()), chain(*CANDIDATES.values()), FAILURES)
FAILURES |= {arm: FAILURES[candidate] for arm, candidate in FAILED_SWEEPS.items()}
TRAINING_ENVIRONMENT = f"../envs/train-{CONFIGURATION.machine.accelerator}.yaml"
# The rules that make the report of an experiment, the cards of its adapters, and those of its tables that another task
# has not or makes otherwise.
REPORT_RULES = {"classification": "write_report", "instruction": "write_answers_report"}
CARD_RULES = {"classification": "write_model_card", "instruction": "write_answers_card"}
TABLE_RULES = {
    "classification": ("summarize_metrics", "compare_methods", "analyze_errors"),
    "instruction": ("summarize_answers", "compare_answers", "list_answers"),
}
GPUS_PER_JOB = 0 if CONFIGURATION.machine.accelerator == "cpu" else 1

# Jobs write everything they say to their log; the terminal gets the last line of one that failed, which says why.
shell.prefix(
    "set -euo pipefail; "
    'logged() {{ local log="$1" status=0; shift; "$@" > "$log" 2>&1 || status=$?; '
    'if [ "$status" != 0 ]; then tail -n 1 "$log" >&2; fi; return "$status"; }}; '
)


def any_of(names):
    """A wildcard constraint: one of the names, or nothing when there are none."""
    return "|".join(map(re.escape, sorted(names))) or "(?!)"


def methods(stage):
    """The methods of the chosen experiments whose arms go through a rule."""
    arms = chain(*ARMS.values())
    return {arm.method for arm in arms if stage in plan.own_stages(CONFIGURATION, arm)}


def methods_and_variants(stage):
    """A wildcard constraint: those methods, and all variants of the methods whose variants go through the rule.

    The variants are not named one by one, since Snakemake is slow with a constraint that has a thousand of them.
    """
    variants = chain(*CANDIDATES.values(), *CURVE_POINTS.values())
    varied = {arm.method for arm in variants if stage in plan.own_stages(CONFIGURATION, arm)}
    return f"{any_of(methods(stage))}|(?:{any_of(varied)})/[^/]+"


wildcard_constraints:
    experiment=any_of(EXPERIMENTS),
    dataset=any_of([*CONFIGURATION.datasets, *CONFIGURATION.instructions]),
    format="merged|gguf",
    model=any_of([CLASSICAL, *CONFIGURATION.models]),
    method=any_of(CONFIGURATION.methods),
    part="all|train|validation|test|documents",
    seed=r"\d+",
    rows=r"\d+",
    split_seed=r"\d+",


# Code


def script_file(name):
    """A script, as an input of its rule."""
    return str(PROJECT / "scripts" / f"{name}.py")


def shared_templates(*others):
    """The templates that every report is made with, and others, as inputs."""
    sections = ["_macros", "_sweep", "_resources", "_arms", "_settings", "_method", "_reproducibility"]
    return [library_file(f"templates/{name}.html.jinja") for name in ("page", *sections, *others)]


def library_file(name):
    """A file of the library that is no Python, as an input of the rule that reads it."""
    return str(PROJECT / "scripts" / "reprolora" / name)


def code_of(name):
    """A digest of a script and of the library modules that it imports, directly or not, as a parameter of its rule.

    By content alone: Snakemake looks at an input's content only when its time is later than the outputs', so that a
    file which was copied with its old time would be missed. And modules are no inputs, since twenty of them for each of
    a thousand jobs would make Snakemake slow.
    """
    file = PROJECT / "scripts" / f"{name}.py"
    contents = {str(file.relative_to(PROJECT)): sha256_of(file) for file in [file, *import_closure(file)]}
    return sha256(canonical_json(contents).encode()).hexdigest()


class Untracked:
    """A parameter that Snakemake does not record, since it is no plain value; so a change of it reruns nothing."""

    def __init__(self, text):
        self._text = text

    def __str__(self):
        return self._text


# Arms


def arm_of(wildcards):
    method, _, variant = wildcards.method.partition("/")
    return plan.Arm(wildcards.experiment, wildcards.model, method, int(wildcards.seed), variant)


def running_arms(experiment, stage=None):
    """The arms of an experiment that have not failed; with a stage, those of them that go through that rule."""
    return [
        arm
        for arm in ARMS[experiment]
        if arm not in FAILURES and (stage is None or stage in plan.stages(CONFIGURATION, arm))
    ]


def files_of_arms(name, stage=None):
    """An input function: the file of this name of every running arm; what training wrote, where its adapter is from."""

    def files(wildcards):
        experiment = wildcards.experiment
        arms = trained_arms(experiment) if stage == "train_adapter" else running_arms(experiment, stage)
        return [f"{arm.folder}/{name}" for arm in arms]

    return files


def failures_of_arms(wildcards):
    failed = [FAILED_SWEEPS.get(arm, arm) for arm in ARMS[wildcards.experiment] if arm in FAILURES]
    return [f"{arm.folder}/failure.json" for arm in dict.fromkeys(failed)]


def failures_of_experiment(wildcards):
    """The same with candidates of sweeps and points of learning curves."""
    failed = [a for a in ALL_ARMS if a.experiment == wildcards.experiment and a in FAILURES and a not in FAILED_SWEEPS]
    return [f"{arm.folder}/failure.json" for arm in failed]


# Sweeps and learning curves


def trained_arm(arm):
    """The arm that was trained for an arm: itself, or the candidate that its sweep selected."""
    if not plan.is_swept(CONFIGURATION, arm):
        return arm
    table = checkpoints.select_candidates.get(experiment=arm.experiment).output[0]
    return replace(arm, variant=plan.selected_candidate(Path(table), arm))


def trained_arms(experiment):
    """The arms that the adapters of an experiment's running arms come from."""
    return [trained_arm(arm) for arm in running_arms(experiment, "train_adapter")]


def of_training(name):
    """An output of the training that an arm's adapter comes from; an input function where something is swept.

    (A function of each of a thousand jobs takes Snakemake much longer than a path with wildcards.)
    """
    output = getattr(rules.train_adapter.output, name)
    if not any(CANDIDATES.values()):
        return output
    return lambda wildcards: expand(output, **trained_arm(arm_of(wildcards)).wildcards)


def training_rows(wildcards):
    """The rows that an arm is trained on: the whole training split, or some of it."""
    arm = arm_of(wildcards)
    rows = plan.variant_of(CONFIGURATION, arm).rows
    return split_path(arm.experiment, f"train/{rows}-seed{arm.seed}.jsonl" if rows else "train.jsonl")


def trainings_of_candidates(wildcards):
    return [f"{arm.folder}/training.json" for arm in CANDIDATES[wildcards.experiment] if arm not in FAILURES]


def failures_of_candidates(wildcards):
    return [f"{arm.folder}/failure.json" for arm in CANDIDATES[wildcards.experiment] if arm in FAILURES]


def sweep_table(wildcards):
    """The experiment's table of candidates, where something is swept."""
    return [f"results/{wildcards.experiment}/tables/sweep.csv"] if CANDIDATES[wildcards.experiment] else []


def metrics_of_curve(wildcards):
    """The metrics of a learning curve's points, and of the arms on all rows that end it."""
    methods_shown = CONFIGURATION.curve_methods(wildcards.experiment)
    whole = [arm for arm in ARMS[wildcards.experiment] if arm.method in methods_shown]
    return [f"{a.folder}/metrics.json" for a in [*CURVE_POINTS[wildcards.experiment], *whole] if a not in FAILURES]


def table_rules(experiment):
    """The rules that make an experiment's tables."""
    judged = ["judge_answers"] if experiment in JUDGED_EXPERIMENTS else []
    return [*TABLE_RULES[EXPERIMENTS[experiment].task], *judged, "write_main_table", "summarize_resources"]


def figure_rules(experiment):
    """The rules whose figures have something to show."""
    trained = bool(running_arms(experiment, "train_adapter"))
    shown = dict.fromkeys(["plot_training", "plot_resources"], trained)
    if experiment in INSTRUCTION_EXPERIMENTS:
        running = {(arm.model, CONFIGURATION.methods[arm.method].trains) for arm in running_arms(experiment)}
        shown["plot_answers"] = bool(running)
        shown["plot_changes"] = any((model, False) in running for model, trains in running if trains)
        return [name for name, something in shown.items() if something]
    shown |= {"plot_accuracy": True, "plot_confusion": bool(running_arms(experiment))}
    # Without a model's probabilities, there would only be those of the baselines.
    probable = "likelihood" in EXPERIMENTS[experiment].evaluation.modes and bool(models_asked(experiment))
    shown |= {"plot_audit": True, "plot_calibration": probable}
    shown["plot_learning_curve"] = any(arm not in FAILURES for arm in CURVE_POINTS[experiment])
    return [name for name, something in shown.items() if something]


def figures(wildcards):
    """The experiment's figures and the data behind them."""
    outputs = [getattr(rules, name).output for name in figure_rules(wildcards.experiment)]
    return [file for output in outputs for file in expand(output, experiment=wildcards.experiment)]


def tables(wildcards):
    """The experiment's tables."""
    names = table_rules(wildcards.experiment)
    return [file for name in names for file in expand(getattr(rules, name).output, **wildcards)]


def judge_table(wildcards):
    """The experiment's table of judgements, where a model judges its answers."""
    return [rules.judge_answers.output.table] if wildcards.experiment in JUDGED_EXPERIMENTS else []


def model_cards(wildcards):
    """The card beside the adapter of every trained arm."""
    card = getattr(rules, CARD_RULES[EXPERIMENTS[wildcards.experiment].task])
    return [file for arm in trained_arms(wildcards.experiment) for file in expand(card.output, **arm.wildcards)]


def folders_of_arms(wildcards):
    """The folders of the experiment's arms, and those of the candidates that are some arms' adapters."""
    arms = [*ARMS[wildcards.experiment], *trained_arms(wildcards.experiment)]
    return list(dict.fromkeys(arm.folder for arm in arms))


def metrics_of_adapter(wildcards):
    """What came of an adapter's test: for a sweep's selected candidate, the metrics of the arm that it was selected for."""
    arm = arm_of(wildcards)
    whole = replace(arm, variant="")
    return f"{(whole if plan.is_swept(CONFIGURATION, whole) else arm).folder}/metrics.json"


# Exports


def exported_files(wildcards):
    """What `snakemake export` makes: the exported models of the experiments' arms, each with its answers."""
    files = []
    for experiment, settings in EXPERIMENTS.items():
        formats = ["merged", "gguf"] if settings.export.gguf else ["merged"]
        for arm in running_arms(experiment, "train_adapter"):
            if arm.method in CONFIGURATION.exported_methods(experiment):
                files += [f"{arm.export_folder}/{format}/changes.json" for format in formats]
    return files


def answers_before_export(wildcards):
    """The answers to compare an exported model's with: the adapter's, or for a GGUF file the merged model's."""
    arm = arm_of(wildcards)
    folder = arm.folder if wildcards.format == "merged" else f"{arm.export_folder}/merged"
    return f"{folder}/predictions.jsonl"


def publications():
    """What the chosen experiments publish: pairs of an experiment and a repository."""
    return [(name, repository) for name, settings in EXPERIMENTS.items() for repository in settings.publish]


def published_files(experiment, repository):
    """The files that a publication is made of, by what they are."""
    publication = EXPERIMENTS[experiment].publish[repository]
    if publication.what == "dataset":
        rows = {what: split_path(experiment, f"{what}.jsonl") for what in ("train", "validation", "test")}
        return rows | {"summary": split_path(experiment, "summary.json")}
    arm = plan.published_arm(experiment, publication)
    trained = trained_arm(arm)
    [card] = expand(rules.write_model_card.output, **trained.wildcards)
    if publication.what == "adapter":
        outputs = [rules.train_adapter.output.adapter_config, *rules.train_adapter.output.adapter]
        return {"card": card, "adapter": expand(outputs, **trained.wildcards)}
    folder = f"{arm.export_folder}/{publication.what}"
    return {"card": card, "manifest": f"{folder}/manifest.json", "changes": f"{folder}/changes.json"}


def files_to_publish(wildcards):
    files = [file for names in publications() for file in published_files(*names).values()]
    return [path for file in files for path in ([file] if isinstance(file, str) else file)]


def publish_settings(wildcards):
    return canonical_json(
        [
            plan.publication_settings(CONFIGURATION, *names) | {"files": published_files(*names)}
            for names in publications()
        ]
    )


# Data and models


def split_file(name):
    """A file of the experiment's split, as an input; an input function where the experiments have different seeds."""
    seeds = {experiment.split.seed for experiment in EXPERIMENTS.values()}
    if len(seeds) == 1:
        return f"results/{{experiment}}/splits/seed{seeds.pop()}/{name}"
    return lambda wildcards: split_path(wildcards.experiment, name)


def split_path(experiment, name):
    """A file of an experiment's split."""
    return f"results/{experiment}/splits/seed{EXPERIMENTS[experiment].split.seed}/{name}"


def rows_to_show(wildcards):
    """The training rows, for a baseline that shows some of them in its prompt."""
    shots = CONFIGURATION.methods[wildcards.method].shots
    return split_path(wildcards.experiment, "train.jsonl") if shots else []


def checked_split():
    """An input that lets an arm start only when the split was checked; what else becomes of it reruns no arm.

    Instructions are told apart when they are split, so there is nothing to wait for.
    """

    def file(wildcards):
        if wildcards.experiment in INSTRUCTION_EXPERIMENTS:
            return []
        return split_path(wildcards.experiment, "leakage.json")

    return ancient(file if INSTRUCTION_EXPERIMENTS else split_file("leakage.json"))


def rows_of_experiment(wildcards):
    return f"results/datasets/{EXPERIMENTS[wildcards.experiment].dataset}/rows.jsonl"


def dataset_manifest(wildcards):
    return f"results/datasets/{EXPERIMENTS[wildcards.experiment].dataset}/manifest.json"


def models_asked(experiment):
    """The models that have a running arm."""
    return list(dict.fromkeys(arm.model for arm in running_arms(experiment) if arm.model != CLASSICAL))


def prompts_of_models(wildcards):
    return [f"results/{wildcards.experiment}/{model}/prompts.json" for model in models_asked(wildcards.experiment)]


def manifests_of_models(wildcards):
    return [f"results/models/{model}/manifest.json" for model in models_asked(wildcards.experiment)]


def sources_of(dataset):
    """The parts of a dataset of either catalogue, with their sources."""
    if dataset in CONFIGURATION.datasets:
        return CONFIGURATION.datasets[dataset].files.parts
    return CONFIGURATION.instructions[dataset].sources


def raw_files(wildcards):
    """The raw file of each part of a dataset, in order: fetched, or the user's own where it lies."""
    files = []
    for part, file in sources_of(wildcards.dataset).items():
        source = parse_source(file.source)
        own = os.path.relpath(Path(workflow.basedir) / source.name)
        files.append(own if source.kind == "file" else f"results/datasets/{wildcards.dataset}/raw/{part}")
    return files


def raw_arguments(wildcards):
    """The same as arguments, PART=FILE."""
    parts = sources_of(wildcards.dataset)
    return [f"{part}={file}" for part, file in zip(parts, raw_files(wildcards), strict=True)]


def own_data(wildcards):
    """Digests of the user's own files, which may be replaced by ones with an older time."""
    parts = sources_of(wildcards.dataset).values()
    own = [parse_source(file.source).kind == "file" for file in parts]
    files = [Path(file) for file, is_own in zip(raw_files(wildcards), own, strict=True) if is_own]
    return [sha256_of(file) for file in files if file.is_file()]


def datasets_from(what, *kinds):
    """A wildcard constraint: the instruction data made from `files` or `documents`, by a generator of these kinds."""
    return any_of(
        name
        for name, entry in CONFIGURATION.instructions.items()
        if getattr(entry, what) and (not kinds or entry.generator.kind in kinds)
    )


def fetched_documents(wildcards):
    """The fetched archive of documents; nothing when they are the user's own, which a digest stands for."""
    own = parse_source(sources_of(wildcards.dataset)["documents"].source).kind == "file"
    return [] if own else f"results/datasets/{wildcards.dataset}/raw/documents"


def documents_place(wildcards):
    """The archive or folder that the documents are in."""
    return raw_files(wildcards)[0]


def own_documents(wildcards):
    """A digest of the user's own documents: their names and contents."""
    if fetched_documents(wildcards):
        return []
    place, folder = Path(documents_place(wildcards)), "".join(sources_of(wildcards.dataset)["documents"].member)
    if place.is_file():
        return sha256_of(place)
    files = [(name, sha256_of(place / folder / name)) for name, _, _ in list_files(place, folder)]
    return sha256(repr(files).encode()).hexdigest()


def decisions_file(wildcards):
    """Where the reviewer's decisions are, from here; nothing when the review is skipped."""
    review = CONFIGURATION.instructions[wildcards.dataset].review
    return [os.path.relpath(Path(workflow.basedir) / review.decisions)] if review.decisions else []


def decisions_argument(wildcards):
    return [f"--decisions={file}" for file in decisions_file(wildcards)]


def decisions_digest(wildcards):
    return [sha256_of(file) for file in decisions_file(wildcards) if Path(file).is_file()]


def review_files(wildcards):
    """The sample to review and the page for it; nothing when the review is skipped."""
    if not decisions_file(wildcards):
        return []
    return [f"results/datasets/{wildcards.dataset}/review/{name}" for name in ("sample.json", "index.html")]


def review_arguments(wildcards):
    files = review_files(wildcards)
    return [f"--{name}={file}" for name, file in zip(("sample", "page"), files, strict=False)]


def judge_labels(wildcards):
    """Where a person's verdicts on answers are, from here; nothing when there are none."""
    labels = EXPERIMENTS[wildcards.experiment].answers.judge.labels
    return [os.path.relpath(Path(workflow.basedir) / labels)] if labels else []


def judge_labels_argument(wildcards):
    return [f"--labels={file}" for file in judge_labels(wildcards)]


def judge_labels_digest(wildcards):
    return [sha256_of(file) for file in judge_labels(wildcards)]


def manifest_of_chunks_model(wildcards):
    return f"results/models/{CONFIGURATION.instructions[wildcards.dataset].chunks.model}/manifest.json"


def manifest_of_generator(wildcards):
    return f"results/models/{CONFIGURATION.instructions[wildcards.dataset].generator.model}/manifest.json"


def own_model(wildcards):
    """The folder of a model that lies on this machine, as one item; nothing for one that is fetched."""
    source = parse_source(CONFIGURATION.models[wildcards.model].source)
    return [os.path.relpath(Path(workflow.basedir) / source.name)] if source.kind == "file" else []


def own_model_files(wildcards):
    """The files in that folder, so that a change in them is seen."""
    files = [file for folder in own_model(wildcards) for file in Path(folder).glob("[!.]*") if file.is_file()]
    return sorted(map(str, files))


def own_model_arguments(wildcards):
    """The argument that tells fetch_model where that folder is from here."""
    return [f"--local={folder}" for folder in own_model(wildcards)]


# Settings: for each rule, as JSON, the part of the configuration that it reads


def arm_settings(rule, *wildcard_names):
    """A params function: the settings of a rule for an arm, and for what these wildcards choose."""

    def settings(wildcards):
        chosen = [getattr(wildcards, name) for name in wildcard_names]
        return canonical_json(getattr(plan, f"{rule}_settings")(CONFIGURATION, arm_of(wildcards), *chosen))

    return settings


def settings_of(rule, *wildcard_names):
    """A params function: the settings of a rule, which these wildcards choose."""

    def settings(wildcards):
        chosen = [getattr(wildcards, name) for name in wildcard_names]
        return canonical_json(getattr(plan, f"{rule}_settings")(CONFIGURATION, *chosen))

    return settings


def check_leakage_settings(wildcards):
    return Untracked(settings_of("check_leakage", "experiment")(wildcards))


def action_on_diagnosis(wildcards):
    return Untracked(EXPERIMENTS[wildcards.experiment].diagnosis.action)


def chat_template_needed(wildcards):
    """Whether fetch_model refuses a model without a chat template; looked at before a model is fetched, and not later."""
    asking = [experiment.prompt for experiment in EXPERIMENTS.values() if wildcards.model in experiment.models]
    return Untracked("required" if any(prompt.template == "chat" for prompt in asking) else "optional")


def doctor_settings(wildcards):
    chosen = {method for experiment in EXPERIMENTS.values() for method in experiment.methods}
    return canonical_json(plan.doctor_settings(CONFIGURATION, chosen))


# Resources


def threads_per_job(wildcards):
    """Threads of a job with a language model: all cores on a CPU, an equal share for each GPU otherwise."""
    cores = workflow.cores or 1  # none on a cluster, where the profile sets threads
    if not GPUS_PER_JOB:
        return cores
    gpus = workflow.global_resources["gpu"].value if "gpu" in workflow.global_resources else 1
    return max(1, cores // max(1, gpus))


# Targets and messages


def final_outputs():
    """What a run makes: the reports with their tables and figures; and of arms that are finished, what was deleted.

    (Snakemake does not miss a deleted file that nothing asks for. Asking for all files of all arms would be slow.)
    """
    files = []
    for experiment, chosen in EXPERIMENTS.items():
        for name in (REPORT_RULES[chosen.task], "write_crate", *table_rules(experiment), *figure_rules(experiment)):
            files += expand(getattr(rules, name).output, experiment=experiment)
        # By itself: Snakemake does not start a checkpoint for a job whose outputs are there.
        if CANDIDATES[experiment]:
            files += expand(rules.select_candidates.output, experiment=experiment)
    for arm in ALL_ARMS:
        stages = plan.own_stages(CONFIGURATION, arm)
        last = "training.json" if stages == ("train_adapter",) else "metrics.json"
        if arm not in FAILURES and Path(arm.folder, last).exists():
            if "train_adapter" in stages and not arm.variant:
                stages += (CARD_RULES[EXPERIMENTS[arm.experiment].task],)
            made = [file for stage in stages for file in expand(getattr(rules, stage).output, **arm.wildcards)]
            files += [file for file in made if not Path(file).exists()]
    return files


def say_what_failed():
    """After a failed run: which arms failed, and what to do about each."""
    for arm in ALL_ARMS:
        failure = plan.failure(CONFIGURATION, arm)
        if failure and arm not in FAILURES:
            print(
                f"arm {arm} failed in {failure['stage']}: {failure['reason']}\n"
                "  Run the same command again: the results leave this arm out and show it as failed, until its\n"
                f"  settings change. To try it again as it is, delete '{arm.folder}/failure.json'.",
                file=sys.stderr,
            )

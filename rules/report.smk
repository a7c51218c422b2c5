rule write_report:
    input:
        script=script_file("write_report"),
        template=library_file("templates/report.html.jinja"),
        partials=shared_templates("_audit", "_errors"),
        references=library_file("references.bib"),
        metrics_table="results/{experiment}/tables/metrics.csv",
        pooled_table="results/{experiment}/tables/metrics_pooled.csv",
        main_table=rules.write_main_table.output,
        comparison_table="results/{experiment}/tables/comparison.csv",
        resources_table="results/{experiment}/tables/resources.csv",
        error_tables=rules.analyze_errors.output,
        audit=split_file("audit.json"),
        near_duplicates=split_file("near_duplicates.csv"),
        label_suspects=split_file("label_suspects.csv"),
        figures=figures,
        metrics=files_of_arms("metrics.json"),
        training=files_of_arms("training.json", "train_adapter"),
        failures=failures_of_experiment,
        sweep=sweep_table,
        prompts=prompts_of_models,
        models=manifests_of_models,
        dataset=dataset_manifest,
        split=split_file("summary.json"),
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    output:
        page=report(
            "results/{experiment}/report.html",
            caption="../report/report.rst",
            category="{experiment}",
            labels={"what": "Report", "kind": "page"},
        ),
        bibliography="results/{experiment}/references.bib",
    log:
        "results/logs/write_report/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(LABEL_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("write_report"),
        settings=settings_of("write_report", "experiment"),
    message:
        "Writing the report of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --template {input.template:q}"
        " --metrics-table {input.metrics_table:q} --pooled-table {input.pooled_table:q}"
        " --main-table {input.main_table:q} --comparison-table {input.comparison_table:q}"
        " --error-tables {input.error_tables:q} --audit {input.audit:q} --audit-tables {input.near_duplicates:q}"
        " {input.label_suspects:q} --resources-table {input.resources_table:q} --figures {input.figures:q}"
        " --metrics {input.metrics:q}"
        " --training {input.training:q} --failures {input.failures:q}"
        " --sweep {input.sweep:q}"
        " --prompts {input.prompts:q} --models {input.models:q} --dataset {input.dataset:q} --split {input.split:q}"
        " --split-rows {input.train:q} {input.validation:q} {input.test:q} --bibliography {output.bibliography:q}"
        " --output {output.page:q}"


rule write_answers_report:
    input:
        script=script_file("write_answers_report"),
        template=library_file("templates/answers_report.html.jinja"),
        partials=shared_templates(),
        references=library_file("references.bib"),
        metrics_table="results/{experiment}/tables/metrics.csv",
        pooled_table="results/{experiment}/tables/metrics_pooled.csv",
        main_table=rules.write_main_table.output,
        comparison_table="results/{experiment}/tables/comparison.csv",
        resources_table="results/{experiment}/tables/resources.csv",
        answers_table=rules.list_answers.output,
        judge_table=judge_table,
        figures=figures,
        metrics=files_of_arms("metrics.json"),
        training=files_of_arms("training.json", "train_adapter"),
        failures=failures_of_experiment,
        sweep=sweep_table,
        prompts=prompts_of_models,
        models=manifests_of_models,
        dataset=dataset_manifest,
        split=split_file("summary.json"),
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    output:
        page=report(
            "results/{experiment}/report.html",
            caption="../report/report.rst",
            category="{experiment}",
            labels={"what": "Report", "kind": "page"},
        ),
        bibliography="results/{experiment}/references.bib",
    log:
        "results/logs/write_answers_report/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("write_answers_report"),
        settings=settings_of("write_answers_report", "experiment"),
    message:
        "Writing the report of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --template {input.template:q}"
        " --metrics-table {input.metrics_table:q} --pooled-table {input.pooled_table:q}"
        " --main-table {input.main_table:q} --comparison-table {input.comparison_table:q}"
        " --resources-table {input.resources_table:q} --answers-table {input.answers_table:q}"
        " --judge-table {input.judge_table:q} --figures {input.figures:q} --metrics {input.metrics:q}"
        " --training {input.training:q} --failures {input.failures:q} --sweep {input.sweep:q}"
        " --prompts {input.prompts:q} --models {input.models:q} --dataset {input.dataset:q} --split {input.split:q}"
        " --split-rows {input.train:q} {input.validation:q} {input.test:q} --bibliography {output.bibliography:q}"
        " --output {output.page:q}"


rule write_crate:
    input:
        script=script_file("write_crate"),
        citation=str(PROJECT / "CITATION.cff"),
        report=rules.write_report.output,
        tables=tables,
        figures=figures,
        cards=model_cards,
        prompts=prompts_of_models,
        split=split_file("summary.json"),
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
        dataset=dataset_manifest,
        models=manifests_of_models,
    output:
        "results/{experiment}/ro-crate-metadata.json",
    log:
        "results/logs/write_crate/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("write_crate"),
        settings=settings_of("write_crate", "experiment"),
        # All files of the arms are in the crate, but only the report, which is made of them, is an input: to name ten
        # files of each of a thousand arms would make Snakemake slow and the command too long.
        arms=folders_of_arms,
    message:
        "Describing the results of {wildcards.experiment} as an RO-Crate"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --citation {input.citation:q}"
        " --files {input.report:q} {input.tables:q} {input.figures:q} {input.prompts:q} {input.split:q} {input.train:q}"
        " {input.validation:q} {input.test:q} --arms {params.arms:q} --dataset {input.dataset:q}"
        " --models {input.models:q} --output {output:q}"

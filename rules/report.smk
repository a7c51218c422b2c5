rule write_report:
    input:
        script=script_file("write_report"),
        template=library_file("templates/report.html.jinja"),
        metrics_table="results/{experiment}/tables/metrics.csv",
        pooled_table="results/{experiment}/tables/metrics_pooled.csv",
        main_table=rules.write_main_table.output,
        comparison_table="results/{experiment}/tables/comparison.csv",
        resources_table="results/{experiment}/tables/resources.csv",
        figures=figures,
        metrics=files_of_arms("metrics.json"),
        predictions=files_of_arms("predictions.jsonl"),
        training=files_of_arms("training.json", "train_adapter"),
        failures=failures_of_arms,
        prompts=prompts_of_models,
        models=manifests_of_models,
        dataset=dataset_manifest,
        split=split_file("summary.json"),
    output:
        report(
            "results/{experiment}/report.html",
            caption="../report/report.rst",
            category="{experiment}",
            labels={"what": "Report", "kind": "page"},
        ),
    log:
        "results/logs/write_report/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("write_report"),
        settings=write_report_settings,
    message:
        "Writing the report of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --template {input.template:q}"
        " --metrics-table {input.metrics_table:q} --pooled-table {input.pooled_table:q}"
        " --main-table {input.main_table:q} --comparison-table {input.comparison_table:q}"
        " --resources-table {input.resources_table:q} --figures {input.figures:q} --metrics {input.metrics:q}"
        " --predictions {input.predictions:q} --training {input.training:q} --failures {input.failures:q}"
        " --prompts {input.prompts:q} --models {input.models:q} --dataset {input.dataset:q} --split {input.split:q}"
        " --output {output:q}"

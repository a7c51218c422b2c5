rule write_report:
    input:
        script=script_file("write_report"),
        tables=tables,
        figures=figures,
        prompts=prompts_of_models,
        training=files_of_arms("training.json", "train_adapter"),
        predictions=files_of_arms("predictions.jsonl"),
        failures=failures_of_arms,
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
        library=library_of("write_report"),
        settings=write_report_settings,
    message:
        "Writing the report of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --output {output:q}"

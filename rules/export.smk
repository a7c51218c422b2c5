# Nothing here is part of a run, unless it is asked for: `snakemake export`, or one of the files.


rule export:
    input:
        exported_files,


rule merge_adapter:
    input:
        script=script_file("merge_adapter"),
        model="results/models/{model}/manifest.json",
        adapter_config=of_training("adapter_config"),
        adapter=of_training("adapter"),
        training=of_training("training"),
    output:
        "results/exports/{experiment}/{model}/{method}/seed{seed}/merged/manifest.json",
    log:
        "results/logs/merge_adapter/{experiment}/{model}/{method}/seed{seed}.log",
    wildcard_constraints:
        method=methods_and_variants("train_adapter"),
    conda:
        TRAINING_ENVIRONMENT
    resources:
        mem_mb=4000,
    params:
        code=code_of("merge_adapter"),
        settings=arm_settings("merge_adapter"),
    message:
        "Merging {wildcards.method} into {wildcards.model} for {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --adapter-config {input.adapter_config:q}"
        " --training {input.training:q} --settings {params.settings:q} --manifest {output:q}"


rule export_gguf:
    input:
        script=script_file("export_gguf"),
        model=rules.merge_adapter.output,
    output:
        "results/exports/{experiment}/{model}/{method}/seed{seed}/gguf/manifest.json",
    log:
        "results/logs/export_gguf/{experiment}/{model}/{method}/seed{seed}.log",
    wildcard_constraints:
        method=methods_and_variants("train_adapter"),
    conda:
        TRAINING_ENVIRONMENT
    resources:
        mem_mb=4000,
    params:
        code=code_of("export_gguf"),
        settings=arm_settings("export_gguf"),
    message:
        "Writing the GGUF file of {wildcards.method} on {wildcards.model} for {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --settings {params.settings:q}"
        " --manifest {output:q}"


rule evaluate_export:
    input:
        script=script_file("evaluate_export"),
        model="results/exports/{experiment}/{model}/{method}/seed{seed}/{format}/manifest.json",
        base="results/models/{model}/manifest.json",
        training=of_training("training"),
        before=answers_before_export,
        train=[],
        validation=[],
        test=split_file("test.jsonl"),
    output:
        predictions="results/exports/{experiment}/{model}/{method}/seed{seed}/{format}/predictions.jsonl",
        metrics="results/exports/{experiment}/{model}/{method}/seed{seed}/{format}/metrics.json",
        resources="results/exports/{experiment}/{model}/{method}/seed{seed}/{format}/resources_evaluate.json",
        changes="results/exports/{experiment}/{model}/{method}/seed{seed}/{format}/changes.json",
    log:
        "results/logs/evaluate_export/{experiment}/{model}/{method}/seed{seed}/{format}.log",
    benchmark:
        "results/benchmarks/evaluate_export/{experiment}/{model}/{method}/seed{seed}/{format}.tsv"
    wildcard_constraints:
        experiment=any_of(LABEL_EXPERIMENTS),
        method=methods_and_variants("train_adapter"),
    conda:
        TRAINING_ENVIRONMENT
    threads: threads_per_job
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=4000,
    params:
        code=code_of("evaluate_export"),
        settings=arm_settings("evaluate_export", "format"),
    message:
        "Loading {wildcards.method} on {wildcards.model} as {wildcards.format} for the answers of {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --base {input.base:q}"
        " --training {input.training:q} --before {input.before:q} --train {input.train:q}"
        " --validation {input.validation:q} --test {input.test:q} --settings {params.settings:q}"
        " --predictions {output.predictions:q} --metrics {output.metrics:q} --resources {output.resources:q}"
        " --changes {output.changes:q} --threads {threads}"


use rule evaluate_export as evaluate_export_answers with:
    input:
        script=script_file("evaluate_export_answers"),
        model="results/exports/{experiment}/{model}/{method}/seed{seed}/{format}/manifest.json",
        base="results/models/{model}/manifest.json",
        training=of_training("training"),
        before=answers_before_export,
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    log:
        "results/logs/evaluate_export_answers/{experiment}/{model}/{method}/seed{seed}/{format}.log",
    benchmark:
        "results/benchmarks/evaluate_export_answers/{experiment}/{model}/{method}/seed{seed}/{format}.tsv"
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
        method=methods_and_variants("train_adapter"),
    params:
        code=code_of("evaluate_export_answers"),
        settings=arm_settings("evaluate_export", "format"),


rule publish:
    input:
        script=script_file("publish"),
        templates=[
            library_file("templates/published_dataset.md.jinja"),
            library_file("templates/published_model.md.jinja"),
        ],
        files=files_to_publish,
    log:
        "results/logs/publish.log",
    conda:
        "../envs/fetch.yaml"
    resources:
        mem_mb=1000,
    params:
        settings=publish_settings,
        folder="results/publish",
    message:
        "Listing what is to be published, and uploading what --config upload=[...] names"
    shell:
        # The terminal gets the list, since that is what it is for.
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --folder {params.folder:q}; cat {log:q}"

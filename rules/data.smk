rule fetch_dataset:
    input:
        script=script_file("fetch_dataset"),
    output:
        "results/datasets/{dataset}/raw/{part}",
    log:
        "results/logs/fetch_dataset/{dataset}/{part}.log",
    conda:
        "../envs/fetch.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("fetch_dataset"),
        settings=settings_of("fetch_dataset", "dataset", "part"),
    message:
        "Fetching {wildcards.part} of {wildcards.dataset}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --output {output:q}"


rule prepare_dataset:
    input:
        script=script_file("prepare_dataset"),
        raw=raw_files,
    output:
        rows="results/datasets/{dataset}/rows.jsonl",
        manifest="results/datasets/{dataset}/manifest.json",
    log:
        "results/logs/prepare_dataset/{dataset}.log",
    wildcard_constraints:
        dataset=any_of(CONFIGURATION.datasets),
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("prepare_dataset"),
        settings=settings_of("prepare_dataset", "dataset"),
        raw=raw_arguments,
        own=own_data,
    message:
        "Reading the rows of {wildcards.dataset}"
    shell:
        "logged {log:q} python {input.script:q} --raw {params.raw:q} --settings {params.settings:q}"
        " --rows {output.rows:q} --manifest {output.manifest:q}"


rule split_dataset:
    input:
        script=script_file("split_dataset"),
        rows=rows_of_experiment,
    output:
        train="results/{experiment}/splits/seed{split_seed}/train.jsonl",
        validation="results/{experiment}/splits/seed{split_seed}/validation.jsonl",
        test="results/{experiment}/splits/seed{split_seed}/test.jsonl",
        summary="results/{experiment}/splits/seed{split_seed}/summary.json",
    log:
        "results/logs/split_dataset/{experiment}/seed{split_seed}.log",
    wildcard_constraints:
        experiment=any_of(EXPERIMENTS.keys() - INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("split_dataset"),
        settings=settings_of("split_dataset", "experiment"),
    message:
        "Splitting the rows of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --rows {input.rows:q} --settings {params.settings:q}"
        " --train {output.train:q} --validation {output.validation:q} --test {output.test:q}"
        " --summary {output.summary:q}"


# A gate before the arms, not a result: it runs when the split is new, and a change of its limits or code, which would
# change no arm, does not make it run again. (If it did, Snakemake would in the same run overlook other changes of the
# arms, as it does behind an `ancient` input that is made again.) What is tracked is audit_splits, which has the same
# limits: lowered ones stop the next run there.
rule check_leakage:
    input:
        script=ancient(script_file("check_leakage")),
        train=rules.split_dataset.output.train,
        validation=rules.split_dataset.output.validation,
        test=rules.split_dataset.output.test,
    output:
        "results/{experiment}/splits/seed{split_seed}/leakage.json",
    log:
        "results/logs/check_leakage/{experiment}/seed{split_seed}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=2000,
    params:
        settings=check_leakage_settings,
    message:
        "Looking for test rows of {wildcards.experiment} that are learned from"
    shell:
        "logged {log:q} python {input.script:q} --train {input.train:q} --validation {input.validation:q}"
        " --test {input.test:q} --settings {params.settings:q} --output {output:q}"


rule audit_splits:
    input:
        script=script_file("audit_splits"),
        train=rules.split_dataset.output.train,
        validation=rules.split_dataset.output.validation,
        test=rules.split_dataset.output.test,
        leakage=ancient(rules.check_leakage.output),  # so that leakage is said once
    output:
        audit="results/{experiment}/splits/seed{split_seed}/audit.json",
        near_duplicates="results/{experiment}/splits/seed{split_seed}/near_duplicates.csv",
        label_suspects="results/{experiment}/splits/seed{split_seed}/label_suspects.csv",
    log:
        "results/logs/audit_splits/{experiment}/seed{split_seed}.log",
    # Early, since a limit that was lowered stops the run here.
    priority: 1
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("audit_splits"),
        settings=settings_of("audit_splits", "experiment"),
    message:
        "Auditing the splits of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --train {input.train:q} --validation {input.validation:q}"
        " --test {input.test:q} --settings {params.settings:q} --audit {output.audit:q}"
        " --near-duplicates {output.near_duplicates:q} --label-suspects {output.label_suspects:q}"

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
        settings=fetch_dataset_settings,
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
        settings=prepare_dataset_settings,
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
        settings=split_dataset_settings,
    message:
        "Splitting the rows of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --rows {input.rows:q} --settings {params.settings:q}"
        " --train {output.train:q} --validation {output.validation:q} --test {output.test:q}"
        " --summary {output.summary:q}"

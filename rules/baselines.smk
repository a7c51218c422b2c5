rule evaluate_prompted:
    input:
        script=script_file("evaluate_prompted"),
        model="results/models/{model}/manifest.json",
        train=rows_to_show,
        test=split_file("test.jsonl"),
        leakage=checked_split(),
    output:
        predictions="results/{experiment}/{model}/{method}/seed{seed}/predictions.jsonl",
        metrics="results/{experiment}/{model}/{method}/seed{seed}/metrics.json",
        resources="results/{experiment}/{model}/{method}/seed{seed}/resources_evaluate.json",
    log:
        "results/logs/evaluate_prompted/{experiment}/{model}/{method}/seed{seed}.log",
    benchmark:
        "results/benchmarks/evaluate_prompted/{experiment}/{model}/{method}/seed{seed}.tsv"
    wildcard_constraints:
        method=any_of(methods("evaluate_prompted")),
    conda:
        TRAINING_ENVIRONMENT
    threads: threads_per_job
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=4000,
    params:
        code=code_of("evaluate_prompted"),
        settings=arm_settings("evaluate_prompted"),
    message:
        "Asking {wildcards.model} as it is for the answers of {wildcards.experiment} ({wildcards.method})"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --train {input.train:q}"
        " --test {input.test:q} --settings {params.settings:q} --predictions {output.predictions:q} --metrics {output.metrics:q}"
        " --resources {output.resources:q} --threads {threads}"


rule evaluate_classical:
    input:
        script=script_file("evaluate_classical"),
        train=training_rows,
        test=split_file("test.jsonl"),
        leakage=checked_split(),
    output:
        predictions="results/{experiment}/{model}/{method}/seed{seed}/predictions.jsonl",
        metrics="results/{experiment}/{model}/{method}/seed{seed}/metrics.json",
        resources="results/{experiment}/{model}/{method}/seed{seed}/resources_evaluate.json",
    log:
        "results/logs/evaluate_classical/{experiment}/{model}/{method}/seed{seed}.log",
    wildcard_constraints:
        model=CLASSICAL,
        method=methods_and_variants("evaluate_classical"),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("evaluate_classical"),
        settings=arm_settings("evaluate_classical"),
    message:
        "Answering {wildcards.experiment} with {wildcards.method}"
    shell:
        "logged {log:q} python {input.script:q} --train {input.train:q} --test {input.test:q}"
        " --settings {params.settings:q} --predictions {output.predictions:q} --metrics {output.metrics:q}"
        " --resources {output.resources:q}"

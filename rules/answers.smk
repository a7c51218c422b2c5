rule evaluate_base_answers:
    input:
        script=script_file("evaluate_base_answers"),
        model="results/models/{model}/manifest.json",
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    output:
        predictions="results/{experiment}/{model}/{method}/seed{seed}/predictions.jsonl",
        metrics="results/{experiment}/{model}/{method}/seed{seed}/metrics.json",
        resources="results/{experiment}/{model}/{method}/seed{seed}/resources_evaluate.json",
    log:
        "results/logs/evaluate_base_answers/{experiment}/{model}/{method}/seed{seed}.log",
    benchmark:
        "results/benchmarks/evaluate_base_answers/{experiment}/{model}/{method}/seed{seed}.tsv"
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
        method=any_of(methods("evaluate_base_answers")),
    conda:
        TRAINING_ENVIRONMENT
    threads: threads_per_job
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=4000,
    params:
        code=code_of("evaluate_base_answers"),
        settings=arm_settings("evaluate_base_answers"),
    message:
        "Asking {wildcards.model} as it is to follow the instructions of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --train {input.train:q}"
        " --validation {input.validation:q} --test {input.test:q} --settings {params.settings:q}"
        " --predictions {output.predictions:q} --metrics {output.metrics:q} --resources {output.resources:q}"
        " --threads {threads}"


rule evaluate_adapter_answers:
    input:
        script=script_file("evaluate_adapter_answers"),
        model="results/models/{model}/manifest.json",
        adapter_config=of_training("adapter_config"),
        adapter=of_training("adapter"),
        training=of_training("training"),
        reload_probe=of_training("reload_probe"),
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    output:
        predictions="results/{experiment}/{model}/{method}/seed{seed}/predictions.jsonl",
        metrics="results/{experiment}/{model}/{method}/seed{seed}/metrics.json",
        resources="results/{experiment}/{model}/{method}/seed{seed}/resources_evaluate.json",
    log:
        "results/logs/evaluate_adapter_answers/{experiment}/{model}/{method}/seed{seed}.log",
    benchmark:
        "results/benchmarks/evaluate_adapter_answers/{experiment}/{model}/{method}/seed{seed}.tsv"
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
        method=any_of(methods("evaluate_adapter_answers")),
    conda:
        TRAINING_ENVIRONMENT
    threads: threads_per_job
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=4000,
    params:
        code=code_of("evaluate_adapter_answers"),
        settings=arm_settings("evaluate_adapter_answers"),
    message:
        "Reloading {wildcards.method} on {wildcards.model} to follow the instructions of {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --adapter-config {input.adapter_config:q}"
        " --training {input.training:q} --reload-probe {input.reload_probe:q} --train {input.train:q}"
        " --validation {input.validation:q} --test {input.test:q} --settings {params.settings:q}"
        " --predictions {output.predictions:q} --metrics {output.metrics:q} --resources {output.resources:q}"
        " --threads {threads}"


rule judge_answers:
    input:
        script=script_file("judge_answers"),
        metrics=files_of_arms("metrics.json"),
    output:
        table="results/{experiment}/tables/judge.csv",
        verdicts="results/{experiment}/tables/judge_verdicts.csv",
    log:
        "results/logs/judge_answers/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(JUDGED_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("judge_answers"),
        settings=settings_of("judge_answers", "experiment"),
        # No output: the answers that were paid for outlive a job that failed, and one that runs again.
        answers="results/{experiment}/judge",
        labels=judge_labels_argument,
        labelled=judge_labels_digest,
    message:
        "Letting a model judge the answers of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q} --settings {params.settings:q}"
        " --answers {params.answers:q} {params.labels:q} --table {output.table:q} --verdicts {output.verdicts:q}"

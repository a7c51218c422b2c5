rule train_adapter:
    input:
        script=script_file("train_adapter"),
        model="results/models/{model}/manifest.json",
        train=training_rows,
        validation=split_file("validation.jsonl"),
        leakage=checked_split(),
    output:
        adapter_config="results/{experiment}/{model}/{method}/seed{seed}/adapter/adapter_config.json",
        adapter=[
            "results/{experiment}/{model}/{method}/seed{seed}/adapter/adapter_model.safetensors",
            "results/{experiment}/{model}/{method}/seed{seed}/adapter/tokenizer.json",
            "results/{experiment}/{model}/{method}/seed{seed}/adapter/tokenizer_config.json",
            "results/{experiment}/{model}/{method}/seed{seed}/adapter/chat_template.jinja",
        ],
        training_log="results/{experiment}/{model}/{method}/seed{seed}/training_log.jsonl",
        training="results/{experiment}/{model}/{method}/seed{seed}/training.json",
        resources="results/{experiment}/{model}/{method}/seed{seed}/resources_train.json",
        reload_probe="results/{experiment}/{model}/{method}/seed{seed}/reload_probe.jsonl",
    log:
        "results/logs/train_adapter/{experiment}/{model}/{method}/seed{seed}.log",
    benchmark:
        "results/benchmarks/train_adapter/{experiment}/{model}/{method}/seed{seed}.tsv"
    wildcard_constraints:
        method=methods_and_variants("train_adapter"),
    conda:
        TRAINING_ENVIRONMENT
    threads: threads_per_job
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=4000,
    params:
        code=code_of("train_adapter"),
        settings=arm_settings("train_adapter"),
        # Not an output, since Snakemake deletes outputs before a job starts, and a killed job resumes from here.
        checkpoints="results/checkpoints/{experiment}/{model}/{method}/seed{seed}",
        # Sent to another tracker, the results are the same.
        tracking=Untracked(CONFIGURATION.tracking),
        tracking_folder="results/tracking",
        # What was found is recorded either way; a stopped arm is trained again when it should only be warned of.
        on_problem=action_on_diagnosis,
    message:
        "Training {wildcards.method} on {wildcards.model} for {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --train {input.train:q}"
        " --validation {input.validation:q} --settings {params.settings:q} --adapter-config {output.adapter_config:q}"
        " --training-log {output.training_log:q} --training {output.training:q} --resources {output.resources:q}"
        " --reload-probe {output.reload_probe:q} --checkpoints {params.checkpoints:q} --tracking {params.tracking:q}"
        " --tracking-folder {params.tracking_folder:q} --on-problem {params.on_problem:q} --threads {threads}"


rule evaluate_adapter:
    input:
        script=script_file("evaluate_adapter"),
        model="results/models/{model}/manifest.json",
        adapter_config=of_training("adapter_config"),
        adapter=of_training("adapter"),
        training=of_training("training"),
        reload_probe=of_training("reload_probe"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    output:
        predictions="results/{experiment}/{model}/{method}/seed{seed}/predictions.jsonl",
        metrics="results/{experiment}/{model}/{method}/seed{seed}/metrics.json",
        resources="results/{experiment}/{model}/{method}/seed{seed}/resources_evaluate.json",
    log:
        "results/logs/evaluate_adapter/{experiment}/{model}/{method}/seed{seed}.log",
    benchmark:
        "results/benchmarks/evaluate_adapter/{experiment}/{model}/{method}/seed{seed}.tsv"
    wildcard_constraints:
        method=methods_and_variants("evaluate_adapter"),
    conda:
        TRAINING_ENVIRONMENT
    threads: threads_per_job
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=4000,
    params:
        code=code_of("evaluate_adapter"),
        settings=arm_settings("evaluate_adapter"),
    message:
        "Reloading {wildcards.method} on {wildcards.model} for the answers of {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --adapter-config {input.adapter_config:q}"
        " --training {input.training:q} --reload-probe {input.reload_probe:q} --validation {input.validation:q}"
        " --test {input.test:q} --settings {params.settings:q} --predictions {output.predictions:q}"
        " --metrics {output.metrics:q} --resources {output.resources:q} --threads {threads}"


rule write_model_card:
    input:
        script=script_file("write_model_card"),
        template=library_file("templates/model_card.md.jinja"),
        training=rules.train_adapter.output.training,
        metrics=metrics_of_adapter,
    output:
        "results/{experiment}/{model}/{method}/seed{seed}/adapter/README.md",
    log:
        "results/logs/write_model_card/{experiment}/{model}/{method}/seed{seed}.log",
    wildcard_constraints:
        experiment=any_of(LABEL_EXPERIMENTS),
        method=methods_and_variants("train_adapter"),
    conda:
        TRAINING_ENVIRONMENT
    resources:
        mem_mb=500,
    params:
        code=code_of("write_model_card"),
        settings=arm_settings("write_model_card"),
    message:
        "Writing the model card of {wildcards.method} on {wildcards.model} for {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --training {input.training:q}"
        " --metrics {input.metrics:q} --template {input.template:q} --output {output:q}"


rule write_answers_card:
    input:
        script=script_file("write_answers_card"),
        template=library_file("templates/model_card.md.jinja"),
        training=rules.train_adapter.output.training,
        metrics=metrics_of_adapter,
    output:
        "results/{experiment}/{model}/{method}/seed{seed}/adapter/README.md",
    log:
        "results/logs/write_answers_card/{experiment}/{model}/{method}/seed{seed}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
        method=methods_and_variants("train_adapter"),
    conda:
        TRAINING_ENVIRONMENT
    resources:
        mem_mb=500,
    params:
        code=code_of("write_answers_card"),
        settings=arm_settings("write_answers_card"),
    message:
        "Writing the model card of {wildcards.method} on {wildcards.model} for {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --training {input.training:q}"
        " --metrics {input.metrics:q} --template {input.template:q} --output {output:q}"

rule fetch_model:
    input:
        script=script_file("fetch_model"),
        own=own_model_files,
    output:
        manifest="results/models/{model}/manifest.json",
    log:
        "results/logs/fetch_model/{model}.log",
    conda:
        "../envs/fetch.yaml"
    resources:
        mem_mb=4000,
    params:
        code=code_of("fetch_model"),
        settings=settings_of("fetch_model", "model"),
        local=own_model_arguments,
        chat_template=chat_template_needed,
    message:
        "Fetching the model {wildcards.model}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} {params.local:q}"
        " --chat-template {params.chat_template:q} --manifest {output.manifest:q}"


rule inspect_prompts:
    input:
        script=script_file("inspect_prompts"),
        model="results/models/{model}/manifest.json",
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    output:
        "results/{experiment}/{model}/prompts.json",
    log:
        "results/logs/inspect_prompts/{experiment}/{model}.log",
    wildcard_constraints:
        experiment=any_of(EXPERIMENTS.keys() - INSTRUCTION_EXPERIMENTS),
    # Early, since it says at once what training would stop at: prompts that are cut. (Not an input of train_adapter:
    # what else is counted here changes no adapter; and an `ancient` one would hide other changes from Snakemake.)
    priority: 1
    conda:
        TRAINING_ENVIRONMENT
    resources:
        mem_mb=2000,
    params:
        code=code_of("inspect_prompts"),
        settings=settings_of("inspect_prompts", "experiment"),
    message:
        "Counting the tokens of the prompts of {wildcards.experiment} for {wildcards.model}"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --train {input.train:q}"
        " --validation {input.validation:q} --test {input.test:q} --settings {params.settings:q} --output {output:q}"


rule inspect_instructions:
    input:
        script=script_file("inspect_instructions"),
        model="results/models/{model}/manifest.json",
        train=split_file("train.jsonl"),
        validation=split_file("validation.jsonl"),
        test=split_file("test.jsonl"),
    output:
        "results/{experiment}/{model}/prompts.json",
    log:
        "results/logs/inspect_instructions/{experiment}/{model}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    # As with inspect_prompts: what training would stop at is said early.
    priority: 1
    conda:
        TRAINING_ENVIRONMENT
    resources:
        mem_mb=2000,
    params:
        code=code_of("inspect_instructions"),
        settings=settings_of("inspect_instructions", "experiment"),
    message:
        "Counting the tokens of the instructions of {wildcards.experiment} for {wildcards.model}"
    shell:
        "logged {log:q} python {input.script:q} --model {input.model:q} --train {input.train:q}"
        " --validation {input.validation:q} --test {input.test:q} --settings {params.settings:q} --output {output:q}"

rule plot_accuracy:
    input:
        script=script_file("plot_accuracy"),
        metrics="results/{experiment}/tables/metrics.csv",
        pooled="results/{experiment}/tables/metrics_pooled.csv",
    output:
        png="results/{experiment}/figures/accuracy.png",
        svg=report(
            "results/{experiment}/figures/accuracy.svg",
            caption="../report/accuracy.rst",
            category="{experiment}",
            labels={"what": "Accuracy and F1", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/accuracy.csv",
    log:
        "results/logs/plot_accuracy/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_accuracy"),
    message:
        "Drawing accuracy and F1 of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q} --pooled {input.pooled:q}"
        " --png {output.png:q} --svg {output.svg:q} --csv {output.csv:q}"


rule plot_confusion:
    input:
        script=script_file("plot_confusion"),
        metrics=files_of_arms("metrics.json"),
    output:
        png="results/{experiment}/figures/confusion.png",
        svg=report(
            "results/{experiment}/figures/confusion.svg",
            caption="../report/confusion.rst",
            category="{experiment}",
            labels={"what": "Confusion matrices", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/confusion.csv",
    log:
        "results/logs/plot_confusion/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_confusion"),
    message:
        "Drawing the confusion matrices of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q} --png {output.png:q} --svg {output.svg:q}"
        " --csv {output.csv:q}"


rule plot_training:
    input:
        script=script_file("plot_training"),
        logs=files_of_arms("training_log.jsonl", "train_adapter"),
    output:
        png="results/{experiment}/figures/training.png",
        svg=report(
            "results/{experiment}/figures/training.svg",
            caption="../report/training.rst",
            category="{experiment}",
            labels={"what": "Loss and learning rate", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/training.csv",
    log:
        "results/logs/plot_training/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_training"),
    message:
        "Drawing the loss curves of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --logs {input.logs:q}"
        " --png {output.png:q} --svg {output.svg:q} --csv {output.csv:q}"


rule plot_resources:
    input:
        script=script_file("plot_resources"),
        resources="results/{experiment}/tables/resources.csv",
    output:
        png="results/{experiment}/figures/resources.png",
        svg=report(
            "results/{experiment}/figures/resources.svg",
            caption="../report/resources.rst",
            category="{experiment}",
            labels={"what": "Memory and time", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/resources.csv",
    log:
        "results/logs/plot_resources/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_resources"),
    message:
        "Drawing memory and time of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --resources {input.resources:q} --png {output.png:q}"
        " --svg {output.svg:q} --csv {output.csv:q}"


rule plot_audit:
    input:
        script=script_file("plot_audit"),
        audit=split_file("audit.json"),
        prompts=prompts_of_models,
    output:
        png="results/{experiment}/figures/audit.png",
        svg=report(
            "results/{experiment}/figures/audit.svg",
            caption="../report/audit.rst",
            category="{experiment}",
            labels={"what": "Classes and lengths", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/audit.csv",
    log:
        "results/logs/plot_audit/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_audit"),
    message:
        "Drawing the classes and lengths of the rows of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --audit {input.audit:q} --prompts {input.prompts:q}"
        " --png {output.png:q} --svg {output.svg:q} --csv {output.csv:q}"


rule plot_calibration:
    input:
        script=script_file("plot_calibration"),
        metrics=files_of_arms("metrics.json"),
    output:
        png="results/{experiment}/figures/calibration.png",
        svg=report(
            "results/{experiment}/figures/calibration.svg",
            caption="../report/calibration.rst",
            category="{experiment}",
            labels={"what": "Calibration", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/calibration.csv",
    log:
        "results/logs/plot_calibration/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_calibration"),
    message:
        "Drawing the calibration of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q} --png {output.png:q} --svg {output.svg:q}"
        " --csv {output.csv:q}"


rule plot_learning_curve:
    input:
        script=script_file("plot_learning_curve"),
        metrics=metrics_of_curve,
        split=split_file("summary.json"),
    output:
        png="results/{experiment}/figures/learning_curve.png",
        svg=report(
            "results/{experiment}/figures/learning_curve.svg",
            caption="../report/learning_curve.rst",
            category="{experiment}",
            labels={"what": "Learning curve", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/learning_curve.csv",
    log:
        "results/logs/plot_learning_curve/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_learning_curve"),
    message:
        "Drawing the learning curve of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q} --split {input.split:q} --png {output.png:q}"
        " --svg {output.svg:q} --csv {output.csv:q}"


rule plot_answers:
    input:
        script=script_file("plot_answers"),
        metrics="results/{experiment}/tables/metrics.csv",
        pooled="results/{experiment}/tables/metrics_pooled.csv",
    output:
        png="results/{experiment}/figures/answers.png",
        svg=report(
            "results/{experiment}/figures/answers.svg",
            caption="../report/answers.rst",
            category="{experiment}",
            labels={"what": "Domain accuracy and answers", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/answers.csv",
    log:
        "results/logs/plot_answers/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_answers"),
        settings=settings_of("plot_answers", "experiment"),
    message:
        "Drawing the scores of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --metrics {input.metrics:q}"
        " --pooled {input.pooled:q} --png {output.png:q} --svg {output.svg:q} --csv {output.csv:q}"


rule plot_changes:
    input:
        script=script_file("plot_changes"),
        metrics=files_of_arms("metrics.json"),
    output:
        png="results/{experiment}/figures/changes.png",
        svg=report(
            "results/{experiment}/figures/changes.svg",
            caption="../report/changes.rst",
            category="{experiment}",
            labels={"what": "Before and after", "kind": "figure"},
        ),
        csv="results/{experiment}/figures/changes.csv",
    log:
        "results/logs/plot_changes/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("plot_changes"),
        settings=settings_of("plot_changes", "experiment"),
    message:
        "Drawing what fine-tuning changed in {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --metrics {input.metrics:q}"
        " --png {output.png:q} --svg {output.svg:q} --csv {output.csv:q}"

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
        training=files_of_arms("training.json", "train_adapter"),
        training_log=files_of_arms("training_log.jsonl", "train_adapter"),
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
        "logged {log:q} python {input.script:q} --training {input.training:q} --training-log {input.training_log:q}"
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

rule summarize_metrics:
    input:
        script=script_file("summarize_metrics"),
        metrics=files_of_arms("metrics.json"),
        failures=failures_of_arms,
    output:
        arms="results/{experiment}/tables/metrics.csv",
        pooled="results/{experiment}/tables/metrics_pooled.csv",
    log:
        "results/logs/summarize_metrics/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(LABEL_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("summarize_metrics"),
    message:
        "Collecting the metrics of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q} --failures {input.failures:q}"
        " --output {output.arms:q} --pooled {output.pooled:q}"


rule write_main_table:
    input:
        script=script_file("write_main_table"),
        metrics="results/{experiment}/tables/metrics_pooled.csv",
    output:
        tex="results/{experiment}/tables/main.tex",
        md="results/{experiment}/tables/main.md",
    log:
        "results/logs/write_main_table/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("write_main_table"),
    message:
        "Writing the main table of {wildcards.experiment} for a paper"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q} --tex {output.tex:q} --md {output.md:q}"


rule compare_methods:
    input:
        script=script_file("compare_methods"),
        metrics=files_of_arms("metrics.json"),
    output:
        "results/{experiment}/tables/comparison.csv",
    log:
        "results/logs/compare_methods/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(LABEL_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("compare_methods"),
        settings=settings_of("compare_methods", "experiment"),
    message:
        "Comparing the methods of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --metrics {input.metrics:q}"
        " --output {output:q}"


rule summarize_resources:
    input:
        script=script_file("summarize_resources"),
        evaluate=files_of_arms("resources_evaluate.json"),
        train=files_of_arms("resources_train.json", "train_adapter"),
    output:
        "results/{experiment}/tables/resources.csv",
    log:
        "results/logs/summarize_resources/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("summarize_resources"),
        price_per_hour=CONFIGURATION.machine.price_per_hour,
    message:
        "Collecting time, memory and cost of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --evaluate {input.evaluate:q} --train {input.train:q}"
        " --price-per-hour {params.price_per_hour} --output {output:q}"


rule analyze_errors:
    input:
        script=script_file("analyze_errors"),
        metrics=files_of_arms("metrics.json"),
    output:
        mistakes="results/{experiment}/tables/mistakes.csv",
        disagreements="results/{experiment}/tables/disagreements.csv",
        breakdown="results/{experiment}/tables/breakdown.csv",
        calibration="results/{experiment}/tables/calibration.csv",
    log:
        "results/logs/analyze_errors/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(LABEL_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("analyze_errors"),
    message:
        "Looking at the mistakes of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --metrics {input.metrics:q}"
        " --mistakes {output.mistakes:q} --disagreements {output.disagreements:q} --breakdown {output.breakdown:q}"
        " --calibration {output.calibration:q}"


rule summarize_answers:
    input:
        script=script_file("summarize_answers"),
        metrics=files_of_arms("metrics.json"),
        failures=failures_of_arms,
    output:
        arms="results/{experiment}/tables/metrics.csv",
        pooled="results/{experiment}/tables/metrics_pooled.csv",
    log:
        "results/logs/summarize_answers/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("summarize_answers"),
        settings=settings_of("summarize_answers", "experiment"),
    message:
        "Collecting the scores of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --metrics {input.metrics:q}"
        " --failures {input.failures:q} --output {output.arms:q} --pooled {output.pooled:q}"


rule compare_answers:
    input:
        script=script_file("compare_answers"),
        metrics=files_of_arms("metrics.json"),
    output:
        "results/{experiment}/tables/comparison.csv",
    log:
        "results/logs/compare_answers/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("compare_answers"),
        settings=settings_of("compare_answers", "experiment"),
    message:
        "Comparing the methods of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --metrics {input.metrics:q}"
        " --output {output:q}"


rule list_answers:
    input:
        script=script_file("list_answers"),
        metrics=files_of_arms("metrics.json"),
    output:
        "results/{experiment}/tables/answers.csv",
    log:
        "results/logs/list_answers/{experiment}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("list_answers"),
        settings=settings_of("list_answers", "experiment"),
    message:
        "Putting the answers of {wildcards.experiment} side by side"
    shell:
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --metrics {input.metrics:q}"
        " --output {output:q}"

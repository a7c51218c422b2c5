rule draw_rows:
    input:
        script=script_file("draw_rows"),
        train="results/{experiment}/splits/seed{split_seed}/train.jsonl",
    output:
        "results/{experiment}/splits/seed{split_seed}/train/{rows}-seed{seed}.jsonl",
    log:
        "results/logs/draw_rows/{experiment}/seed{split_seed}/{rows}-seed{seed}.log",
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("draw_rows"),
    message:
        "Drawing {wildcards.rows} training rows of {wildcards.experiment} (seed {wildcards.seed})"
    shell:
        "logged {log:q} python {input.script:q} --train {input.train:q} --rows {wildcards.rows} --seed {wildcards.seed}"
        " --output {output:q}"


# A checkpoint, since which adapters answer the test rows is known only when all candidates were trained.
checkpoint select_candidates:
    input:
        script=script_file("select_candidates"),
        training=trainings_of_candidates,
        failures=failures_of_candidates,
    output:
        "results/{experiment}/tables/sweep.csv",
    log:
        "results/logs/select_candidates/{experiment}.log",
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("select_candidates"),
    message:
        "Selecting the candidates of {wildcards.experiment} by their validation loss"
    shell:
        "logged {log:q} python {input.script:q} --training {input.training:q} --failures {input.failures:q}"
        " --output {output:q}"

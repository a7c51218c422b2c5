rule convert_documents:
    input:
        script=script_file("convert_documents"),
        fetched=fetched_documents,
    output:
        documents="results/datasets/{dataset}/documents.jsonl",
        summary="results/datasets/{dataset}/documents.json",
    log:
        "results/logs/convert_documents/{dataset}.log",
    wildcard_constraints:
        dataset=datasets_from("documents"),
    conda:
        "../envs/documents.yaml"
    resources:
        mem_mb=4000,
    params:
        code=code_of("convert_documents"),
        settings=settings_of("convert_documents", "dataset"),
        place=documents_place,
        own=own_documents,
    message:
        "Converting the documents of {wildcards.dataset}"
    shell:
        "logged {log:q} python {input.script:q} --place {params.place:q} --settings {params.settings:q}"
        " --documents {output.documents:q} --summary {output.summary:q}"


rule chunk_documents:
    input:
        script=script_file("chunk_documents"),
        documents="results/datasets/{dataset}/documents.jsonl",
        model=manifest_of_chunks_model,
    output:
        chunks="results/datasets/{dataset}/chunks.jsonl",
        summary="results/datasets/{dataset}/chunks.json",
    log:
        "results/logs/chunk_documents/{dataset}.log",
    wildcard_constraints:
        dataset=datasets_from("documents"),
    conda:
        "../envs/documents.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("chunk_documents"),
        settings=settings_of("chunk_documents", "dataset"),
    message:
        "Cutting the documents of {wildcards.dataset} into chunks"
    shell:
        "logged {log:q} python {input.script:q} --documents {input.documents:q} --model {input.model:q}"
        " --settings {params.settings:q} --chunks {output.chunks:q} --summary {output.summary:q}"


rule generate_pairs:
    input:
        script=script_file("generate_pairs"),
        chunks="results/datasets/{dataset}/chunks.jsonl",
    output:
        pairs="results/datasets/{dataset}/pairs.jsonl",
        summary="results/datasets/{dataset}/pairs.json",
    log:
        "results/logs/generate_pairs/{dataset}.log",
    wildcard_constraints:
        dataset=datasets_from("documents", "headings", "openai"),
    conda:
        "../envs/documents.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("generate_pairs"),
        settings=settings_of("generate_pairs", "dataset"),
        # No output: the answers that were paid for outlive a job that failed, and one that runs again.
        answers="results/datasets/{dataset}/answers",
        decisions=decisions_argument,
        decided=decisions_digest,
    message:
        "Making questions and answers from the documents of {wildcards.dataset}"
    shell:
        "logged {log:q} python {input.script:q} --chunks {input.chunks:q} --settings {params.settings:q}"
        " --answers {params.answers:q} {params.decisions:q} --pairs {output.pairs:q} --summary {output.summary:q}"


rule generate_pairs_locally:
    input:
        script=script_file("generate_pairs_locally"),
        chunks="results/datasets/{dataset}/chunks.jsonl",
        model=manifest_of_generator,
    output:
        pairs="results/datasets/{dataset}/pairs.jsonl",
        summary="results/datasets/{dataset}/pairs.json",
    log:
        "results/logs/generate_pairs_locally/{dataset}.log",
    wildcard_constraints:
        dataset=datasets_from("documents", "local"),
    conda:
        TRAINING_ENVIRONMENT
    threads: threads_per_job
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=4000,
    params:
        code=code_of("generate_pairs_locally"),
        settings=settings_of("generate_pairs", "dataset"),
        answers="results/datasets/{dataset}/answers",
        decisions=decisions_argument,
        decided=decisions_digest,
    message:
        "Asking a model for questions and answers about the documents of {wildcards.dataset}"
    shell:
        "logged {log:q} python {input.script:q} --chunks {input.chunks:q} --model {input.model:q}"
        " --settings {params.settings:q} --answers {params.answers:q} {params.decisions:q}"
        " --pairs {output.pairs:q} --summary {output.summary:q} --threads {threads}"


rule sample_for_review:
    input:
        script=script_file("sample_for_review"),
        template=library_file("templates/review.html.jinja"),
        chunks="results/datasets/{dataset}/chunks.jsonl",
        pairs="results/datasets/{dataset}/pairs.jsonl",
    output:
        page="results/datasets/{dataset}/review/index.html",
        csv="results/datasets/{dataset}/review/sample.csv",
        sample="results/datasets/{dataset}/review/sample.json",
    log:
        "results/logs/sample_for_review/{dataset}.log",
    wildcard_constraints:
        dataset=datasets_from("documents"),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=1000,
    params:
        code=code_of("sample_for_review"),
        settings=settings_of("sample_for_review", "dataset"),
        decisions=decisions_argument,
        decided=decisions_digest,
    message:
        "Drawing the pairs of {wildcards.dataset} that a person reviews"
    shell:
        "logged {log:q} python {input.script:q} --name {wildcards.dataset:q} --template {input.template:q}"
        " --chunks {input.chunks:q} --pairs {input.pairs:q} --settings {params.settings:q} {params.decisions:q} --page {output.page:q}"
        " --csv {output.csv:q} --sample {output.sample:q}"


rule check_review:
    input:
        script=script_file("check_review"),
        pairs="results/datasets/{dataset}/pairs.jsonl",
        chunks="results/datasets/{dataset}/chunks.jsonl",
        review=review_files,
        summaries=expand(
            "results/datasets/{{dataset}}/{stage}.json",
            stage=["documents", "chunks", "pairs"],
        ),
    output:
        rows="results/datasets/{dataset}/rows.jsonl",
        manifest="results/datasets/{dataset}/manifest.json",
    log:
        "results/logs/check_review/{dataset}.log",
    wildcard_constraints:
        dataset=datasets_from("documents"),
    conda:
        "../envs/analysis.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("check_review"),
        settings=settings_of("check_review", "dataset"),
        review=review_arguments,
        decisions=decisions_argument,
        decided=decisions_digest,
    message:
        "Checking the review of {wildcards.dataset}"
    shell:
        "logged {log:q} python {input.script:q} --pairs {input.pairs:q} --chunks {input.chunks:q}"
        " --summaries {input.summaries:q} --settings {params.settings:q} {params.review:q} {params.decisions:q} --rows {output.rows:q} --manifest {output.manifest:q}"


rule prepare_instructions:
    input:
        script=script_file("prepare_instructions"),
        raw=raw_files,
    output:
        rows="results/datasets/{dataset}/rows.jsonl",
        manifest="results/datasets/{dataset}/manifest.json",
    log:
        "results/logs/prepare_instructions/{dataset}.log",
    wildcard_constraints:
        dataset=datasets_from("files"),
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("prepare_instructions"),
        settings=settings_of("prepare_instructions", "dataset"),
        raw=raw_arguments,
        own=own_data,
    message:
        "Reading the instructions of {wildcards.dataset}"
    shell:
        "logged {log:q} python {input.script:q} --raw {params.raw:q} --settings {params.settings:q}"
        " --rows {output.rows:q} --manifest {output.manifest:q}"


rule split_instructions:
    input:
        script=script_file("split_instructions"),
        rows=rows_of_experiment,
    output:
        train="results/{experiment}/splits/seed{split_seed}/train.jsonl",
        validation="results/{experiment}/splits/seed{split_seed}/validation.jsonl",
        test="results/{experiment}/splits/seed{split_seed}/test.jsonl",
        summary="results/{experiment}/splits/seed{split_seed}/summary.json",
    log:
        "results/logs/split_instructions/{experiment}/seed{split_seed}.log",
    wildcard_constraints:
        experiment=any_of(INSTRUCTION_EXPERIMENTS),
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=2000,
    params:
        code=code_of("split_instructions"),
        settings=settings_of("split_instructions", "experiment"),
    message:
        "Splitting the instructions of {wildcards.experiment}"
    shell:
        "logged {log:q} python {input.script:q} --rows {input.rows:q} --settings {params.settings:q}"
        " --train {output.train:q} --validation {output.validation:q} --test {output.test:q}"
        " --summary {output.summary:q}"

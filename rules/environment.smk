rule doctor:
    input:
        script=script_file("doctor"),
    output:
        "results/environment.json",
    log:
        "results/logs/doctor.log",
    conda:
        TRAINING_ENVIRONMENT
    resources:
        gpu=GPUS_PER_JOB,
        mem_mb=2000,
    params:
        code=code_of("doctor"),
        settings=doctor_settings,
    message:
        "Looking at this machine and environment"
    shell:
        # The terminal gets the table too, since that is what it is for.
        "logged {log:q} python {input.script:q} --settings {params.settings:q} --output {output:q}; cat {log:q}"

from snakemake.utils import min_version

min_version("9.27")


report: "report/workflow.rst"


include: "rules/common.smk"
include: "rules/data.smk"
include: "rules/documents.smk"
include: "rules/models.smk"
include: "rules/baselines.smk"
include: "rules/adapters.smk"
include: "rules/answers.smk"
include: "rules/sweeps.smk"
include: "rules/export.smk"
include: "rules/tables.smk"
include: "rules/figures.smk"
include: "rules/report.smk"
include: "rules/environment.smk"


localrules:
    all,
    export,
    publish,


rule all:
    default_target: True
    input:
        final_outputs(),


onerror:
    say_what_failed()

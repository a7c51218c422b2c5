"""The library that Reprolora's scripts share. It has no knowledge of Snakemake."""

import logging

# On a CPU with bf16 instructions bitsandbytes says, when it is imported, that a faster product was not downloaded from
# a hub. No layer takes that product here (`reprolora.models.load_base`).
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

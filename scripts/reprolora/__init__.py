"""The library that Reprolora's scripts share. It has no knowledge of Snakemake."""

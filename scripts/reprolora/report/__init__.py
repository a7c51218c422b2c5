"""The report: one page that a person would rather read than the tables.

- `page`: that of an experiment with labels; `answers_page`: of one with instructions; `shared`: what both say.
- `sources`: the files that it is made of. `results`: their content.
- `answer`: the answer in sentences, and what to know before trusting it. `tables`: the rows of its tables. `examples`:
  rows before and after. `evidence`: figures, downloads, links, versions and checksums.
- `method_section`, `answers_method`: the method section for a paper. `audit_section`, `errors_section`,
  `sweep_section`: what those tables say. `wording`: names and numbers for people.

The templates are in `templates/`.
"""

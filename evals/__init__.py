"""Running, grading and comparing; the benchmark table."""

if __name__ == "evals":
    raise ImportError(
        "This folder is the source of stepmark.evals: import that name. "
        "For another project's package named 'evals', run outside this checkout."
    )

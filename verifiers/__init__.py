"""Text in, verdict out. Sympy, never torch."""

if __name__ == "verifiers":
    raise ImportError(
        "This folder is the source of stepmark.verifiers: import that name. "
        "For another project's package named 'verifiers', run outside this checkout."
    )

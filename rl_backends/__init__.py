"""Policy optimisation on one loop."""

if __name__ == "rl_backends":
    raise ImportError(
        "This folder is the source of stepmark.rl_backends: import that name. "
        "For another project's package named 'rl_backends', run outside this checkout."
    )

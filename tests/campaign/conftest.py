"""The campaign takes hours and is run by hand (`make campaign`): nothing here is collected."""

collect_ignore_glob = ["*.py"]

"""The same verifiers where people train already: `adapters.trl` and `adapters.verl`.

Nothing here imports a trainer: a reward is a callable of the shape that the trainer calls.
"""

"""Where problems come from: benchmarks, the embedded `arith`, a user's own data."""

from .arith import Difficulty, check_steps, demonstrations, make_problem
from .arith_model import arith_tokenizer, tiny_llama
from .prompts import PROMPTS, PromptTemplate, prompt_named
from .task import LoadedTask, Task, data_hash, tasks

__all__ = [
    "PROMPTS",
    "Difficulty",
    "LoadedTask",
    "PromptTemplate",
    "Task",
    "arith_tokenizer",
    "check_steps",
    "data_hash",
    "demonstrations",
    "make_problem",
    "prompt_named",
    "tasks",
    "tiny_llama",
]

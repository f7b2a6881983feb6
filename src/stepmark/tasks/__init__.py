"""Where problems come from: benchmarks, the embedded `arith`, a user's own data."""

from .arith import Difficulty, check_steps, demonstrations, make_problem
from .arith_model import arith_tokenizer, tiny_llama
from .dataset import load_dataset_task
from .loading import WeightedTasks, load_task, load_tasks
from .prompts import PromptTemplate, prompt_named
from .readers import Table, read_table
from .schedule import problems_for_step
from .selection import take
from .spec import TaskSpec, load_spec
from .task import LoadedTask, Task, data_hash, tasks

__all__ = [
    "Difficulty",
    "LoadedTask",
    "PromptTemplate",
    "Table",
    "Task",
    "TaskSpec",
    "WeightedTasks",
    "arith_tokenizer",
    "check_steps",
    "data_hash",
    "demonstrations",
    "load_dataset_task",
    "load_spec",
    "load_task",
    "load_tasks",
    "make_problem",
    "problems_for_step",
    "prompt_named",
    "read_table",
    "take",
    "tasks",
    "tiny_llama",
]

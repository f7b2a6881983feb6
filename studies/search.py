"""What a process reward model buys at inference: best of N, votes and search over steps on `arith`.

    OMP_NUM_THREADS=1 python studies/search.py --out runs/study-search --seeds 0,1,2

For each seed a tiny policy learns worked solutions for a while (SFT), its own samples on
training problems are labelled by the task's rules up to the first wrong line, and a reward model
learns from them. Held-out problems are then answered by 16 samples each, and by searches of 4 and
16 beams, led by that model and by the rules themselves (which know the truth: a bound). One line of
``results.jsonl`` per finished piece; run again, it goes on. ``summary.md`` and ``curve.svg`` are
written when all pieces are there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from stepmark.cli.app import run as stepmark
from stepmark.evals import SearchJob, run, sample_policy, weights_hash
from stepmark.evals.drawn import DrawnRun
from stepmark.prm import load_scorer, write_labelled_steps
from stepmark.prm.score_runs import score_run
from stepmark.prm.search import SearchSettings
from stepmark.report import Series, curve_svg, markdown_table, number, percent, points
from stepmark.statistics import doublings, expected_at_k, mean_at_k, paired_means
from stepmark.store import RunFolder, append_rows, publish, read_rows
from stepmark.tasks import arith_tokenizer, load_task, tiny_llama
from stepmark.tasks.arith import check_steps
from stepmark.types import LabelledSteps, Sampling
from stepmark.verifiers import load_verifier

N = 16
SAMPLING = Sampling(temperature=1.0, max_tokens=64)
METHODS = {
    "any one": ("mean", ""),
    "majority": ("majority", ""),
    "weighted majority, min": ("weighted", "min"),
    "best of N, min": ("best", "min"),
    "best of N, last": ("best", "last"),
    "best of N, prod": ("best", "prod"),
    "one is right (pass@N)": ("pass", ""),
}
"""What is done with N samples: the method, and the aggregation of the reward model's scores."""
SEARCHES = [
    (method, n, scorer, how)
    for scorer, how in (("prm", "last"), ("prm", "min"), ("arith-steps", "min"))
    for method, n in (("beam", 4), ("beam", 16), ("dvts", 16))
    if scorer == "prm" or method == "beam"
]


def sft(home: Path, seed: int, steps: int) -> Path:
    """A policy that writes worked solutions, most of them wrong: the last checkpoint."""
    base, folder = home / "base", home / "sft"
    if not base.is_dir():
        tokenizer = arith_tokenizer()
        with publish(base) as part:
            tiny_llama(tokenizer, seed=seed).save_pretrained(part)
            tokenizer.save_pretrained(part)
    flags = ["--preset", "quickstart-sft", "--model", str(base), "--out", str(folder)]
    settings = {
        "algorithm.steps": steps,
        "algorithm.warmup_steps": min(50, steps // 4),
        "algorithm.eval_every": steps,
        "algorithm.save_every": steps,
        "data.eval_limit": 20,
        "data.task": json.dumps([f"arith?seed={seed + 10}&size={64 * steps}"]),
    }
    flags += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    if stepmark(["train", *flags, *(["--resume"] if folder.is_dir() else [])]):
        raise SystemExit(f"SFT into {folder} failed.")
    return folder / "checkpoints" / "final"


def reward_model(home: Path, policy: Path, seed: int, problems: int, steps: int) -> Path:
    """A model that learnt which lines of the policy's own samples are right."""
    rows, folder = home / "rows.jsonl", home / "prm"
    if not rows.is_file():
        task = load_task(f"arith?seed={seed + 20}&size={problems}", "train")
        engine = _engine(policy)
        graded = sample_policy(
            engine, engine.tokenizer, task, load_verifier("math"), SAMPLING, n=8, seed=seed
        )
        engine.close()
        write_labelled_steps(rows, (_labelled(sample, v.correct) for sample, v in graded))
    settings = {
        "algorithm.steps": steps,
        "algorithm.rows_per_step": 48,
        "algorithm.learning_rate": 5e-4,
        "algorithm.warmup_steps": min(20, steps // 4),
        "algorithm.eval_every": steps,
        "algorithm.save_every": steps,
        "algorithm.seed": seed,
        "data.max_tokens": 192,
    }
    flags = ["--base", str(policy), "--data", str(rows), "--out", str(folder)]
    flags += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    if stepmark(["prm", "train", *flags, *(["--resume"] if folder.is_dir() else [])]):
        raise SystemExit(f"The reward model into {folder} failed.")
    return folder / "checkpoints" / "final"


def _labelled(sample: Any, is_right: bool | None) -> LabelledSteps:
    """The lines of a sample with what the rules say, up to the first wrong one."""
    problem = sample.to_item().problem
    lines = tuple(line for line in sample.completion.split("\n") if line.strip()) or ("?",)
    truth = check_steps(problem, lines)
    wrong = truth.index(False) if False in truth else len(truth)
    labels = tuple(float(t) if at <= wrong else None for at, t in enumerate(truth))
    return LabelledSteps(problem, lines, labels, origin="first_error", final_correct=is_right)


def _engine(policy: Path) -> Any:
    from stepmark.engines import TransformersEngine

    return TransformersEngine.load(str(policy))


def samples(home: Path, policy: Path, model: Path, seed: int, limit: int) -> dict[str, Any]:
    """What each method reaches of each problem, at 1, 2, 4, 8 and 16 samples."""
    engine, out = _engine(policy), home / "samples"
    run(
        engine, engine.tokenizer, load_task("arith", "test"), load_verifier("math"), SAMPLING,
        out=out, model=str(policy), n=N, seed=seed, limit=limit, resume=out.exists(),
        weights=weights_hash(policy),
    )  # fmt: skip
    with RunFolder.open(out) as folder:
        score_run(folder, load_scorer(str(model)), engine.tokenizer)
        tokens = sum(len(sample.ids or ()) for sample in folder.samples.rows())
    engine.close()
    drawn = DrawnRun(out)
    ids = list(drawn.problems)
    order = sorted(range(len(ids)), key=lambda at: ids[at])
    values: dict[str, dict[str, list[float]]] = {}
    for name, (method, how) in METHODS.items():
        choice = drawn.choice("prm", how) if how else None
        found = drawn.drawn(choice, votes=method in ("majority", "weighted"))
        problems = [found[at] for at in order]
        values[name] = {
            str(k): [expected_at_k(one, method, k).value for one in problems] for k in doublings(N)
        }
    return {"ids": sorted(ids), "values": values, "tokens": tokens / len(ids)}


def searched(
    home: Path, policy: Path, scorer: str, seed: int, limit: int, settings: SearchSettings
) -> dict[str, Any]:
    """Whether the completion that a search chose is right, of each problem."""
    engine = _engine(policy)
    name = "rules" if scorer == "arith-steps" else "prm"
    out = home / f"{settings.method}-{settings.n}-{name}-{settings.aggregation}"
    job = SearchJob(
        load_task("arith", "test"), load_verifier("math"), load_scorer(scorer), settings,
        str(policy), limit, weights=weights_hash(policy),
    )  # fmt: skip
    found = job.run(engine, engine.tokenizer, out)
    engine.close()
    verdicts = RunFolder.open(out).samples.verdicts("math@2")
    right = {key.id: float(verdict.correct is True) for key, verdict in verdicts.items()}
    majority = found.beside[0].accuracy
    tokens = found.tokens / found.result.n
    return {"right": right, "majority": majority, "tokens": tokens, "rounds": found.rounds}


def pieces(home: Path, seed: int, chosen: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """What there is to do for a seed, by name, in order."""
    policy = home / "sft" / "checkpoints" / "final"
    model = home / "prm" / "checkpoints" / "final"
    found: dict[str, Callable[[], Any]] = {
        "sft": lambda: str(sft(home, seed, chosen.sft_steps)),
        "prm": lambda: str(reward_model(home, policy, seed, chosen.rows, chosen.prm_steps)),
        "samples": lambda: samples(home, policy, model, seed, chosen.problems),
    }
    for method, n, scorer, how in SEARCHES:
        place = str(model) if scorer == "prm" else scorer
        settings = SearchSettings(method, n, 4, how, SAMPLING, max_steps=8, seed=seed)  # type: ignore[arg-type]
        found[f"{method} {n}, {scorer} {how}"] = lambda place=place, settings=settings: searched(
            home, policy, place, seed, chosen.problems, settings
        )
    return found


def main() -> int:
    """Run what is missing, then write the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/study-search"))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--problems", type=int, default=150, help="held-out ones")
    parser.add_argument("--sft-steps", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=300, help="problems of 8 labelled samples")
    parser.add_argument("--prm-steps", type=int, default=300)
    chosen = parser.parse_args()
    seeds = [int(word) for word in chosen.seeds.split(",")]
    results = chosen.out / "results.jsonl"
    chosen.out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name, make in pieces(chosen.out / f"seed-{seed}", seed, chosen).items():
            there = {(row["seed"], row["piece"]) for row in read_rows(results)}
            if (seed, name) in there:
                continue
            started, cpu = time.monotonic(), time.process_time()
            row = {"seed": seed, "piece": name, "found": make()}
            row |= {"wall_s": time.monotonic() - started, "cpu_s": time.process_time() - cpu}
            append_rows(results, [row])
            print(f"seed {seed}, {name}: {row['cpu_s']:.0f} s of CPU", flush=True)
    summarise(chosen.out, seeds)
    return 0


def summarise(out: Path, seeds: Sequence[int]) -> None:
    """``summary.md`` and ``curve.svg``: the means of problems over seeds, compared in pairs."""
    rows = {(row["seed"], row["piece"]): row for row in read_rows(out / "results.jsonl")}
    drawn = [rows[seed, "samples"]["found"] for seed in seeds]
    values = {
        name: {k: _over_seeds([one["values"][name][str(k)] for one in drawn]) for k in doublings(N)}
        for name in METHODS
    }
    cpu = sum(row["cpu_s"] for row in rows.values())
    text = "\n\n".join(
        [
            _curves(values),
            _against(values),
            _searches(rows, seeds, drawn, values),
            f"{len(values['any one'][1])} problems, each the mean over {len(seeds)} seeds; "
            f"{cpu / 60:.1f} minutes of CPU.",
        ]
    )
    with publish(out / "summary.md", replace=True) as part:
        part.write_text(text + "\n", encoding="utf-8")
    lines = [
        Series(
            name,
            tuple((k, fmean(found)) for k, found in of_k.items()),
            tuple(_bounds(found) for found in of_k.values()),
        )
        for name, of_k in values.items()
        if name != "any one"
    ]
    with publish(out / "curve.svg", replace=True) as part:
        part.write_text(curve_svg(lines, "arith: accuracy by samples"), encoding="utf-8")
    print(text)


def _over_seeds(rows: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each problem over the seeds: problems are what is drawn at random."""
    return [fmean(column) for column in zip(*rows, strict=True)]


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """95 % over problems (Wilson, with the effective sample size)."""
    return mean_at_k([[min(1.0, value)] for value in values]).interval


Values = dict[str, dict[int, list[float]]]


def _curves(values: Values) -> str:
    rows = [
        (name, *(percent(fmean(found), _bounds(found)) for found in of_k.values()))
        for name, of_k in values.items()
    ]
    return markdown_table(("", *(f"N = {k}" for k in doublings(N))), rows)


def _against(values: Values) -> str:
    """Each method less the majority, on the same samples."""
    rows: list[tuple[str, ...]] = []
    for name in METHODS:
        if name in ("majority", "any one"):
            continue
        cells: list[str] = []
        for k in doublings(N)[1:]:
            found = paired_means(values[name][k], values["majority"][k])
            cells.append(points(found.difference, found.interval))
        rows.append((name, *cells))
    heads = ("less the majority", *(f"N = {k}" for k in doublings(N)[1:]))
    return markdown_table(heads, rows)


def _searches(rows: Any, seeds: Sequence[int], drawn: Sequence[Any], values: Values) -> str:
    """Each search against best of as many samples by the same scorer, and against the majority."""
    table: list[tuple[str, ...]] = []
    for method, n, scorer, how in SEARCHES:
        found = [rows[seed, f"{method} {n}, {scorer} {how}"]["found"] for seed in seeds]
        ids = drawn[0]["ids"]
        right = _over_seeds([[one["right"][id] for id in ids] for one in found])
        best = "one is right (pass@N)" if scorer != "prm" else f"best of N, {how}"
        cells: list[str] = []
        for name in (best, "majority"):
            pair = paired_means(right, values[name][n])
            cells.append(f"{points(pair.difference, pair.interval)}, p = {number(pair.p, 2)}")
        tokens = fmean(one["tokens"] for one in found)
        sampled = fmean(own["tokens"] for own in drawn) * n / N
        leader = "reward model" if scorer == "prm" else "rules (the truth)"
        table.append(
            (
                f"{method} {n}", f"{leader}, {how}", percent(fmean(right), _bounds(right)),
                *cells, f"{tokens:.0f}", f"{sampled:.0f}",
            )
        )  # fmt: skip
    heads = ("search", "led by", "accuracy", "less best of N (rules: less pass@N)")
    return markdown_table(
        (*heads, "less the majority of N", "tokens", "tokens of N samples"), table
    )


if __name__ == "__main__":
    raise SystemExit(main())

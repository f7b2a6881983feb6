"""Text of a model is data: nothing in a completion, a gold or a column is ever run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stepmark.types import Item, Problem, Status
from stepmark.verifiers import MathVerifier, equal, load_verifier, verify

ROOT = Path(__file__).resolve().parents[2] / "verifiers"


def payloads(mark: Path) -> dict[str, str]:
    """Texts that would create a file, each by another way of being run."""
    chars = "+".join(f"chr({ord(char)})" for char in f"open({str(mark)!r},'w').close()")
    return {
        "import": f"__import__('os').system('touch {mark}')",
        "import in an expression": f"x + __import__('os').system('touch {mark}')",
        "built of chr, no quotes": f"exec({chars})",
        "lambda": f"(lambda: open('{mark}', 'w').close())()",
        "attribute chain": "[c for c in ().__class__.__base__.__subclasses__() "
        f"if c.__name__ == 'Popen'][0](['touch', '{mark}'])",
        "eval of a string": f"eval(\"open('{mark}', 'w').close()\")",
        "f-string": f"{{open('{mark}', 'w').close()}}",
        "format string": f"{{0.__class__.__init__.__globals__[os].system('touch {mark}')}}",
        "sympy function": f'Function(\'__import__("os").system("touch {mark}")\')(x)',
        "LaTeX write18": rf"\immediate\write18{{touch {mark}}}",
        "LaTeX input from a pipe": rf"\input{{|touch {mark}}}",
        "shell backticks": f"`touch {mark}`",
        "shell substitution": f"$(touch {mark})",
        "YAML tag": f"!!python/object/apply:os.system ['touch {mark}']",
        "pickle": f"cos\nsystem\n(S'touch {mark}'\ntR.",
        "template": f"{{{{ cycler.__init__.__globals__.os.popen('touch {mark}') }}}}",
    }


NAMES = sorted(payloads(Path("x")))
WRAPPED = (
    "{}",
    r"\boxed{{{}}}",
    "The answer is ${}$.",
    "#### {}",
    r"\boxed{{\text{{{}}}}}",
    r"\boxed{{\sin(x)+\sqrt{{{}}}}}",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_payload_in_a_completion_or_a_gold_does_not_run(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = payloads(mark)[name]
    for shape in WRAPPED:
        completion = shape.format(text)
        for gold in ("17", r"\sin(x)+\sqrt{17}", text):
            assert verify(completion, gold=gold).status is not Status.ERROR
        assert verify(completion, gold="17").correct is False
        assert verify(r"\boxed{17}", gold=completion).correct is not True
    assert not mark.exists(), "something ran"


def test_payloads_beside_comparisons_that_workers_settle_do_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    hard = r"\boxed{\sin(2x)-2\sin(x)\cos(x)+y}"
    texts = list(payloads(mark).values())
    rows = [Item(Problem(str(n), text, "y"), hard) for n, text in enumerate(texts)]
    rows += [Item(Problem(text, "", text), f"{text} {hard}") for text in texts]
    verdicts = MathVerifier()(rows)
    assert {v.status for v in verdicts} <= {Status.OK, Status.ABSTAIN}
    assert not mark.exists(), "something ran"


def test_payloads_in_a_column_reach_a_custom_verifier_as_text(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    file = tmp_path / "checks.py"
    file.write_text("def same(completion, gold, note):\n    return note in completion\n")
    judge = load_verifier(f"{file}:same")
    for text in payloads(mark).values():
        (verdict,) = judge([Item(Problem("1", "", "1", meta={"note": text}), text)])
        assert verdict.correct is True
    assert not mark.exists(), "something ran"


@pytest.mark.parametrize("name", ["numeric", "choice", "exact", "format", "length?unit=characters"])
def test_other_shipped_verifiers_do_not_run_payloads(name: str, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    judge = load_verifier(name)
    items = [
        Item(Problem("1", "", "1", meta={"choices": [text]}), rf"\boxed{{{text}}}")
        for text in payloads(mark).values()
    ]
    assert all(verdict.status is not Status.ERROR for verdict in judge(items))
    assert not mark.exists(), "something ran"


def test_equal_does_not_run_payloads(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for text in payloads(mark).values():
        assert equal("17", text) is False
    assert not mark.exists()


FORBIDDEN = frozenset(
    ("eval", "exec", "sympify", "parse_expr", "parse_latex", "latex2sympy", "lambdify", "S")
)


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.name)
def test_no_module_calls_what_turns_text_into_code(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            assert name not in FORBIDDEN, f"{path.name}:{node.lineno} calls {name}"

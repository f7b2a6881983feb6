from __future__ import annotations

import pytest

from stepmark.tasks.arith import bare_answer, problems
from stepmark.tasks.arith_model import arith_tokenizer, tiny_llama
from stepmark.tasks.arith_words import pieces

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tokenizer():
    return arith_tokenizer()


def test_every_arith_text_survives_encoding_exactly(tokenizer):
    for problem in problems("test", size=300, steps=[1, 6], max_start=99, max_change=99):
        for answer in (problem.solution, bare_answer(problem)):
            text = f"{problem.text}\n{answer}"
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids, skip_special_tokens=True) == text
            assert len(ids) == len(pieces(text)) + 1
            assert tokenizer.unk_token_id not in ids


def test_prompt_and_completion_encode_the_same_apart_and_together(tokenizer):
    problem = problems("test", size=1)[0]
    prompt, answer = problem.text + "\n", problem.solution
    apart = tokenizer.encode(prompt) + tokenizer.encode(answer, add_special_tokens=False)
    assert apart == tokenizer.encode(prompt + answer)


def test_exactly_one_bos_is_added_and_there_is_no_chat_template(tokenizer):
    ids = tokenizer("Tom has 6 apples.")["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.encode("6", add_special_tokens=False) == tokenizer.convert_tokens_to_ids(["6"])
    assert tokenizer.chat_template is None
    assert tokenizer.encode("quixotic", add_special_tokens=False) == [tokenizer.unk_token_id]


def test_the_model_has_the_promised_size_and_depends_on_the_seed_alone(tokenizer):
    before = torch.random.get_rng_state()
    first, again, other = (tiny_llama(tokenizer, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert 600_000 < sum(p.numel() for p in first.parameters()) < 700_000
    assert all(p.dtype is torch.float32 for p in first.parameters())
    pairs = [*zip(first.parameters(), again.parameters(), strict=True)]
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_model_and_tokenizer_survive_a_folder(tokenizer, tmp_path):
    model = tiny_llama(tokenizer, seed=0, layers=1, width=32, heads=2)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model_again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer_again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "Tom has 12 pens.\n12 + 3 = 15\nanswer: 15"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer_again(text)["input_ids"] == ids
    assert tokenizer_again.decode(ids, skip_special_tokens=True) == text
    assert tokenizer_again.eos_token_id == tokenizer.eos_token_id
    batch = torch.tensor([ids])
    with torch.no_grad():
        assert torch.equal(model(batch).logits, model_again(batch).logits)

"""Names of weights: the same wherever and however they are worked out, others for other weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from stepmark.training.fingerprint import BLOCK, fingerprint_of


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 0.02


def test_the_number_of_threads_does_not_matter() -> None:
    weight, names = drawn(2000, 576), set[str]()
    for count in (1, 2, 4, 8):
        torch.set_num_threads(count)
        names.add(fingerprint_of([("w", weight)]))
    assert len(names) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_two_weights_that_change_places_have_another_name(dtype: torch.dtype) -> None:
    weight = drawn(2 * BLOCK + 5).to(dtype)
    weight[7], weight[9], weight[BLOCK + 3] = 1.0, -1.0, 0.5
    first = fingerprint_of([("w", weight)])
    for one, other in ((7, 9), (7, BLOCK + 3)):
        swapped = weight.clone()
        swapped[one], swapped[other] = weight[other], weight[one]
        assert fingerprint_of([("w", swapped)]) != first
    assert fingerprint_of([("w", weight.clone())]) == first


def test_the_last_bit_of_one_weight_the_shape_and_the_name_count() -> None:
    weight = drawn(30, 20)
    nudged = weight.clone()
    nudged[3, 4] = torch.nextafter(weight[3, 4], torch.tensor(1.0))
    named = [("w", weight), ("w", nudged), ("w", weight.reshape(20, 30)), ("v", weight)]
    assert len({fingerprint_of([pair]) for pair in named}) == 4


def test_layout_order_of_names_and_rounding_to_fewer_bits_do_not_count() -> None:
    weight = drawn(30, 20).bfloat16()
    pairs = [("a", weight), ("b", drawn(0)), ("c", drawn(1)[0])]
    first = fingerprint_of(pairs)
    assert fingerprint_of(reversed(pairs)) == first
    pairs[0] = ("a", weight.t().contiguous().t())
    assert fingerprint_of(pairs) == first
    pairs[0] = ("a", weight.float())
    assert fingerprint_of(pairs) == first

"""The engine's own product with fixed weights: right, and the same bits in whatever company."""

from collections.abc import Iterator

import pytest
import torch

from local_engine.kernels.linear import choose_linear, has_native_linear, native_linear
from local_engine.kernels.native import NativeKernels, native_kernels


# More than the product keeps in registers, in its deep pieces and in its tall ones.
ROWS, DEPTH, COLUMNS = 211, 1300, 96
CPU = torch.device("cpu")


@pytest.fixture
def kernels() -> NativeKernels:
    found = native_kernels()
    assert found is not None, "a C compiler is part of the tests' machine"
    return found


@pytest.fixture
def _two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def weights(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((ROWS, DEPTH), (COLUMNS, DEPTH), (COLUMNS,))
    x, weight, bias = (torch.randn(*size, generator=generator) for size in sizes)
    return x, weight, bias


def test_products_are_those_of_torch_in_double_precision(kernels: NativeKernels) -> None:
    x, weight, bias = weights()
    for given in (None, bias):
        exact = x.double() @ weight.double().T + (0.0 if given is None else given.double())
        found = kernels.linear(weight, given)(x)
        assert (found.double() - exact).abs().max() <= 3e-6 * exact.abs().max()


def test_a_row_has_the_same_bits_whatever_rows_come_with_it(kernels: NativeKernels) -> None:
    x, weight, bias = weights()
    multiply = kernels.linear(weight, bias)
    whole = multiply(x)
    for count in (*range(1, 32), 97, 98, 99, 113, 196, 197, 210):
        assert torch.equal(multiply(x[:count]), whole[:count]), count
        assert torch.equal(multiply(x[ROWS - count :]), whole[ROWS - count :]), count


def test_rows_may_lie_anywhere_and_in_any_shape(kernels: NativeKernels) -> None:
    x, weight, _ = weights()
    multiply = kernels.linear(weight, None)
    expected = multiply(x[:12])
    assert torch.equal(multiply(x[:12].T.contiguous().T), expected)
    assert torch.equal(multiply(x[:12].view(3, 4, DEPTH)), expected.view(3, 4, COLUMNS))


def test_columns_that_it_is_not_written_for_are_multiplied_all_the_same() -> None:
    x, weight, bias = weights()
    found = native_linear(weight[:33], bias[:33])(x)
    assert found.shape == (ROWS, 33)
    assert torch.allclose(found, torch.nn.functional.linear(x, weight[:33], bias[:33]), atol=1e-3)


def test_it_is_chosen_for_one_thread_and_full_precision_only(kernels: NativeKernels) -> None:
    assert has_native_linear(torch.float32) is kernels.has_product
    assert not has_native_linear(torch.bfloat16)
    assert (choose_linear(CPU, torch.float32) is native_linear) is kernels.has_product
    assert choose_linear(CPU, torch.bfloat16) is not native_linear


@pytest.mark.usefixtures("_two_threads")
def test_several_threads_share_out_a_packed_product_instead() -> None:
    assert choose_linear(CPU, torch.float32) is not native_linear

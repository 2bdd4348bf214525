"""What is remembered is what was kept last, for its owner alone, and never more than may be."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.inspection.remembered import Remembered


steps = st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 5)), max_size=60)


@given(st.integers(0, 4), steps)
def test_it_is_a_dictionary_of_the_least_long_unused(
    most: int, plan: list[tuple[bool, str, int]]
) -> None:
    remembered: Remembered[int] = Remembered(most)
    model: dict[tuple[str, bytes], int] = {}
    for time, (keeps, owner, name) in enumerate(plan):
        key = (owner, bytes([name]))
        if keeps and key not in model:
            remembered.keep(*key, time)
            model[key] = time
            while len(model) > most:
                model.pop(next(iter(model)))
        elif not keeps:
            assert remembered.get(*key) == model.get(key)
            if key in model:
                model[key] = model.pop(key)
        assert len(remembered) == len(model)

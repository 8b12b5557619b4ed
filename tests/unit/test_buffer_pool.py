import numpy as np

from emberflow._feed.buffer_pool import ALIGNMENT, BufferPool


def test_memory_is_used_again_only_when_nobody_holds_it() -> None:
    pool = BufferPool()
    first = pool.empty((10_000, 3), np.float32)
    first[:] = 1
    part = first[2:4, 1:]  # a view of a view keeps the memory too
    place = first.ctypes.data
    del first
    second = pool.empty((10_000, 3), np.float32)
    second[:] = 2
    assert second.ctypes.data != place
    assert (part == 1).all()
    del part
    assert pool.empty((9_000, 3), np.float32).ctypes.data == place


def test_a_small_array_does_not_take_the_memory_of_a_large_one() -> None:
    pool = BufferPool()
    place = pool.empty((1 << 22,), np.uint8).ctypes.data
    small = pool.empty((1 << 17,), np.uint8)
    assert small.ctypes.data != place
    assert pool.empty((1 << 22,), np.uint8).ctypes.data == place


def test_as_many_windows_as_are_read_ahead_are_kept() -> None:
    pool = BufferPool()
    places = {array.ctypes.data for array in [pool.empty((1 << 20,), np.uint8) for _ in range(12)]}
    assert {array.ctypes.data for array in [pool.empty((1 << 20,), np.uint8) for _ in range(12)]} == places


def test_arrays_begin_where_tensorflow_takes_them_over() -> None:
    pool = BufferPool()
    arrays = [pool.empty((size,), np.uint8) for size in (1, 63, 1000, 100_000)]
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays)


def test_many_arrays_at_once_do_not_share_memory() -> None:
    pool = BufferPool()
    arrays = [pool.empty((10_000,), np.int64) for _ in range(30)]
    for number, array in enumerate(arrays):
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(arrays))

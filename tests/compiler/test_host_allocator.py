"""glibc keeps what programs on a CPU free, unless the user has set its options."""

import platform

import pytest
from support.described import run_python

from agentrl_jax.compiler.host_allocator import keep_freed_memory

SIZE, ROUNDS = 64 * 2**20, 10
# How often the system gives this process a page, while it takes, fills and frees memory.
TOUCH = f"""
import ctypes, resource
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def touch():
    block = libc.malloc({SIZE})
    libc.memset(block, 1, {SIZE})
    libc.free(block)
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
KEEP = """
from agentrl_jax.compiler.host_allocator import keep_freed_memory
assert keep_freed_memory()
"""
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


@needs_glibc
def test_a_freed_block_is_used_again_without_new_pages():
    pages = ROUNDS * SIZE // 4096
    assert int(run_python("-c", TOUCH)) > pages // 2
    assert int(run_python("-c", KEEP + TOUCH)) < pages // 100


@pytest.mark.parametrize(
    "environ", [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}]
)
def test_options_that_the_user_has_set_stay_as_they_are(environ: dict[str, str]):
    assert not keep_freed_memory(environ)

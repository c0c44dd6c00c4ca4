"""Attacks on other processes, on the limits and on the machine's resources."""

from agentrl_jax.launch.benchmarks.sandbox.attack import Attack

PROCESS_ATTACKS = (
    Attack(
        "fork bomb",
        """
for i in range(200):
    pid = os.fork()
    if pid == 0:
        time.sleep(1)
        os._exit(0)
    print("SUCCEEDED", i)
""",
        ("seccomp",),
    ),
    Attack(
        "fork bomb where processes are allowed",
        """
count = 0
try:
    for i in range(200):
        if os.fork() == 0:
            time.sleep(1)
            os._exit(0)
        count += 1
except OSError:
    pass
if count >= 32:
    print("SUCCEEDED", count)
""",
        ("limits",),
        {"subprocesses": True},
    ),
    Attack(
        "thread bomb",
        """
import threading
threading.stack_size(65536)
count = 0
try:
    for i in range(300):
        threading.Thread(target=time.sleep, args=(0.3,), daemon=True).start()
        count += 1
except RuntimeError:
    pass
if count >= 32:
    print("SUCCEEDED", count)
""",
        ("limits",),
    ),
    Attack(
        "double fork and setsid, to outlive the limit",
        """
libc.prctl(15, target["marker"].encode(), 0, 0, 0)
if os.fork() == 0:
    try:
        os.setsid()
    except OSError:
        pass
    try:
        os.setpgid(0, 0)
    except OSError:
        pass
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(20)
    os._exit(0)
time.sleep(0.2)  # until they have left the group
""",
        ("seccomp",),
        {"subprocesses": True},
    ),
    Attack(
        "zombies and orphans",
        """
libc.prctl(15, target["marker"].encode(), 0, 0, 0)
for i in range(10):
    if os.fork() == 0:
        if i % 2:
            os._exit(0)
        try:
            os.setsid()
        except OSError:
            pass
        os.closerange(0, 3)
        time.sleep(20)
time.sleep(0.2)
os._exit(0)
""",
        ("seccomp",),
        {"subprocesses": True},
    ),
    Attack(
        "ptrace and memory of other processes",
        """
attempt("attach", lambda: libc.ptrace(16, target["victim"], None, None))
for pid in (target["host"], os.getppid(), 1):
    attempt(f"seize {pid}", lambda: libc.ptrace(0x4206, pid, None, None))
buffer = ctypes.create_string_buffer(8)
vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
attempt("read", lambda: syscall("process_vm_readv", os.getpid(), vector, 1, vector, 1, 0))
""",
        ("seccomp",),
    ),
    Attack(
        "signals to the host, the parent and a neighbor",
        """
pids = [target["victim"], target["host"], target["neighbor"], os.getppid()]
for pid in [pid for pid in pids if pid > 100]:  # others are of its own numbering
    attempt(f"kill {pid}", os.kill, pid, signal.SIGCONT)
    attempt(f"tgkill {pid}", lambda: syscall("tgkill", pid, pid, 0))
    attempt(f"queue {pid}", lambda: libc.sigqueue(pid, 0, None))
""",
        ("isolation", "landlock", "seccomp"),
    ),
    Attack(
        "signals by asynchronous input",
        """
import fcntl
def own(descriptor, pid):
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, pid)
    fcntl.fcntl(descriptor, 10, signal.SIGKILL)
reader, writer = os.pipe()
attempt("owner", own, reader, target["victim"])
""",
        ("seccomp",),
    ),
    Attack(
        "limits and priority of other processes",
        """
import resource
pid = target["victim"]
attempt("prlimit", resource.prlimit, pid, resource.RLIMIT_NOFILE, (9, 9))
attempt("priority", os.setpriority, os.PRIO_PROCESS, pid, 10)
attempt("affinity", os.sched_setaffinity, pid, os.sched_getaffinity(0))
attempt("raise own", resource.setrlimit, resource.RLIMIT_CORE, (2**20, 2**20))
""",
        ("isolation", "landlock", "limits", "seccomp"),
    ),
    Attack(
        "memory bomb",
        """
import mmap
blocks, size = [], 2**24
try:
    while sum(map(len, blocks)) < (target["memory_mb"] + 200) * 2**20:
        block = mmap.mmap(-1, size)
        block.write(b"x" * size)
        blocks.append(block)
    print("SUCCEEDED")
except (OSError, MemoryError):
    pass
""",
        ("limits",),
    ),
    Attack(
        "disk bomb",
        """
written = 0
for i in range(100):
    try:
        with open(f"file{i}", "wb") as file:
            for _ in range(10):
                written += os.write(file.fileno(), b"x" * 2**20)
    except OSError:
        pass
    if written > target["disk_mb"] * 3 * 2**20:
        print("SUCCEEDED", written)
        break
""",
        ("isolation", "limits"),
    ),
    Attack(
        "files without end",
        """
count = 0
try:
    for count in range(10_000):
        os.close(os.open(f"file{count}", os.O_CREAT | os.O_WRONLY))
except OSError:
    pass
if count >= 9_999:
    print("SUCCEEDED", count)
""",
        ("isolation", "limits"),
    ),
    Attack(
        "open files without end",
        """
opened = []
try:
    for _ in range(2_000):
        opened.append(os.dup(1))
except OSError:
    pass
if len(opened) > 128:
    print("SUCCEEDED", len(opened))
""",
        ("limits",),
    ),
    Attack(
        "endless loop that ignores signals",
        """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
end = time.monotonic() + 1
while time.monotonic() < end:
    pass
print("SUCCEEDED")
""",
        limits={"seconds": 0.3},
        loose_limits={"seconds": 20.0},
    ),
    Attack(
        "CPU time in threads",
        """
import hashlib, threading
def work():
    while True:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 100_000)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
end = time.process_time() + 1.6
while time.process_time() < end:
    time.sleep(0.02)
print("SUCCEEDED")
""",
        limits={"seconds": 20.0, "cpu_seconds": 1.0},
        loose_limits={"seconds": 20.0, "cpu_seconds": 10.0},
    ),
    Attack(
        "sleep while output drips",
        """
for _ in range(10):
    print("drip", flush=True)
    time.sleep(0.1)
print("SUCCEEDED")
""",
        limits={"seconds": 0.3},
        loose_limits={"seconds": 20.0},
    ),
    Attack(
        "endless output",
        """
for _ in range(2_000):
    sys.stdout.write("x" * 1000)
print("\\nSUCCEEDED")
""",
        limits={"output_kb": 64},
        loose_limits={"output_kb": 4096},
    ),
    Attack(
        "endless output on closed and copied streams",
        """
os.dup2(2, 1)
os.close(2)
for _ in range(2_000):
    os.write(1, b"x" * 1000)
os.write(1, b"\\nSUCCEEDED\\n")
""",
        limits={"output_kb": 64},
        loose_limits={"output_kb": 4096},
    ),
)

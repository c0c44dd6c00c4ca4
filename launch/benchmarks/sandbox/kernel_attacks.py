"""Attacks on the kernel's interface, and on what the host believes of an outcome."""

from agentrl_jax.launch.benchmarks.sandbox.attack import Attack

KERNEL_ATTACKS = (
    Attack(
        "mounts",
        """
os.mkdir("mounted")
def mount():
    result = libc.mount(b"tmpfs", b"mounted", b"tmpfs", 0, None)
    if result == 0:
        libc.umount2(b"mounted", 2)
    return result
attempt("mount", mount)
attempt("chroot", os.chroot, ".")
attempt("new interface", lambda: syscall("fsopen", b"tmpfs", 0))
attempt("pivot_root", lambda: syscall("pivot_root", b".", b"."))
""",
        ("isolation", "seccomp"),
    ),
    Attack(
        "namespaces",
        """
for name, flag in (("user", 1 << 28), ("user and mounts", 1 << 28 | 1 << 17)):
    def enter():
        return libc.unshare(flag)
    attempt(f"unshare {name}", enter)
attempt("clone", lambda: syscall("clone", ctypes.c_ulong(1 << 28 | 17), None, None, None, None))
attempt("clone3", lambda: syscall("clone3", None, ctypes.c_size_t(0)))
""",
        ("seccomp",),
    ),
    Attack(
        "parts of the kernel that have had holes",
        """
buffer = ctypes.create_string_buffer(256)
attempt("io_uring", lambda: syscall("io_uring_setup", 4, buffer))
attempt("bpf", lambda: syscall("bpf", 0, ctypes.create_string_buffer(
    bytes([2, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]) + bytes(240)), 128))
attempt("perf_event_open", lambda: syscall("perf_event_open", buffer, 0, -1, -1, 0))
attempt("userfaultfd", lambda: syscall("userfaultfd", 1))
attempt("keys", lambda: syscall("add_key", b"user", b"attack", b"x", ctypes.c_size_t(1), -2))
attempt("keyctl", lambda: syscall("keyctl", 0, -2, 0))
attempt("kcmp", lambda: syscall("kcmp", os.getpid(), os.getpid(), 0, 0, 0))
attempt("fanotify", lambda: syscall("fanotify_init", 0, 0))
attempt("vmsplice", lambda: syscall("vmsplice", 1, None, ctypes.c_size_t(0), 0))
attempt("name_to_handle_at", lambda: syscall("name_to_handle_at", -100, b".", buffer, buffer, 0))
attempt("personality", lambda: syscall("personality", 0))
attempt("pidfd", lambda: syscall("pidfd_open", os.getpid(), 0))
""",
        ("isolation", "seccomp"),
    ),
    Attack(
        "clock, host name, restart",
        """
attempt("adjtimex", lambda: syscall("adjtimex", ctypes.create_string_buffer(256)))
name = os.uname().nodename.encode()
attempt("host name", lambda: syscall("sethostname", name, ctypes.c_size_t(len(name))))
attempt("log", lambda: syscall("syslog", 3, ctypes.create_string_buffer(64), 64))
""",
        ("isolation", "seccomp"),
    ),
    Attack(
        "other users and capabilities",
        """
attempt("setuid", os.setuid, os.getuid())
attempt("setgroups", os.setgroups, [])
attempt("root", os.setresuid, 0, 0, 0)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
attempt("capset", lambda: libc.capset(header, (ctypes.c_uint32 * 6)()))
""",
        ("isolation", "seccomp"),
    ),
    Attack(
        "keystrokes into a terminal",
        """
import fcntl
def type_into(terminal):
    fcntl.ioctl(terminal, 0x5412, b"x")
for descriptor in (0, 1, 2):
    attempt("TIOCSTI", type_into, descriptor)
attempt("terminal", lambda: type_into(os.open(target["terminal"], os.O_RDWR | os.O_NOCTTY)))
attempt("own terminal", lambda: os.open("/dev/tty", os.O_RDWR))
""",
        ("isolation", "landlock", "seccomp"),
    ),
    Attack(
        "system calls of another architecture",
        """
if "x86" in os.uname().machine:
    # x32, and the gate of 32-bit programs: socket(AF_UNIX, SOCK_STREAM, 0)
    import mmap
    code = bytes.fromhex("53 b867010000 bb01000000 b901000000 31d2 cd80 5b c3".replace(" ", ""))
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    attempt("32 bit", ctypes.CFUNCTYPE(ctypes.c_int)(address))
""",
        ("seccomp",),
    ),
    Attack(
        "programs",
        """
attempt("execve", os.execv, "/bin/sh", ["sh", "-c", "echo SUCCEEDED"])
""",
        ("seccomp",),
    ),
    Attack(
        "a pickle that runs a command",
        """
import pickle
class Payload:
    def __reduce__(self):
        return os.system, ("echo SUCCEEDED",)
pickle.loads(pickle.dumps(Payload()))
""",
        ("seccomp",),
    ),
    Attack(
        "an outcome that the code makes up",
        """
import json
end = json.dumps({"status": 0, "cpu_seconds": 0, "is_late": False, "has_filled_disk": False,
                  "failure": ""}).encode()
for descriptor in range(512):
    for text in (end, b"started", b'{"nonce": "0", "status": 0}\\n'):
        try:
            os.write(descriptor, text)
        except OSError:
            pass
os._exit(9)
""",
        ("closed_descriptors",),
        expected={"exit_code": 9},
    ),
    Attack(
        "text that is no text",
        r"""
os.write(1, b"\x00\xff\xfe\xed\xa0\x80" + "\u202e\u0000\U0010ffff".encode())
os.write(1, b"\x1b[2J\x1b]0;x\x07")
print("\udc80", "\ud800", "\x00" * 100)
sys.stderr.write("\ud800" * 10)
raise SystemExit("\udfff")
""",
        expected={"exit_code": 1},
    ),
    Attack(
        "an exception that attacks its reader",
        """
class Hostile(Exception):
    def __str__(self):
        raise SystemExit(0)
    __repr__ = __str__
sys.excepthook = None
sys.stdout.flush = sys.stderr.write = None
raise Hostile
""",
        expected={"exit_code": 1},
    ),
    Attack(
        "a crash in C",
        """
ctypes.string_at(8)
""",
        expected={"signal": 11},
    ),
)

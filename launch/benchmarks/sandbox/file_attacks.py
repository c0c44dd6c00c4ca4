"""Attacks on the host's files, its memory and its network."""

from agentrl_jax.launch.benchmarks.sandbox.attack import Attack

FILE_ATTACKS = (
    Attack(
        "read files of the host",
        """
for path in ("/etc/passwd", "/etc/shadow", target["file"]):
    attempt(path, lambda: open(path).close())
""",
        ("landlock",),
    ),
    Attack(
        "list folders of the host",
        """
for path, name in ((target["folder"], "file"), ("/etc", "passwd"), ("/proc", str(target["host"]))):
    attempt(path, lambda: name in os.listdir(path) or -1)
""",
        ("landlock",),
    ),
    Attack(
        "write outside the folder",
        """
folder, file = target["folder"], target["file"]
attempt("create", lambda: open(folder + "/new", "w").close())
attempt("overwrite", lambda: os.close(os.open(file, os.O_WRONLY)))
attempt("append to a log", lambda: os.close(os.open(file, os.O_WRONLY | os.O_APPEND)))
attempt("make a folder", os.mkdir, folder + "/new-folder")
attempt("rename", os.rename, file, file + "-moved")
attempt("unlink", os.unlink, file)
""",
        ("landlock",),
    ),
    Attack(
        "truncate a file of the host",
        """
attempt("truncate", os.truncate, target["file"], 0)
attempt("open", lambda: os.close(os.open(target["file"], os.O_RDONLY | os.O_TRUNC)))
""",
        ("landlock", "seccomp"),
    ),
    Attack(
        "change attributes of a file of the host",
        """
file = target["file"]
attempt("chmod", os.chmod, file, 0o600)
attempt("utime", os.utime, file, (1, 1))
attempt("chown", os.chown, file, os.getuid(), os.getgid())
attempt("setxattr", os.setxattr, file, "user.attack", b"x")
""",
        ("isolation", "seccomp"),
    ),
    Attack(
        "symbolic link",
        """
def read():
    os.symlink(target["file"], "link")
    open("link").close()
attempt("read", read)
os.symlink(target["folder"], "folder")
attempt("write", lambda: open("folder/new", "w").close())
""",
        ("landlock",),
    ),
    Attack(
        "hard link",
        """
def read():
    os.link(target["file"], "link")
    open("link").close()
attempt("read", read)
def move():
    open("mine", "w").close()
    os.rename("mine", target["folder"] + "/new")
attempt("move out", move)
""",
        # The folder is on a file system of its own, which links cannot leave.
        ("landlock", "isolation"),
    ),
    Attack(
        "other processes in /proc",
        """
pids = [target["victim"], target["host"], os.getppid(), 1]
try:
    pids += [int(name) for name in os.listdir("/proc") if name.isdigit()]
except OSError:
    pass
for pid in pids:
    for name in ("environ", "cmdline", "maps"):
        try:
            data = open(f"/proc/{pid}/{name}", "rb").read()
        except OSError:
            continue
        if target["marker"].encode() in data or b"sandbox.zygote" in data:
            print("SUCCEEDED", pid, name)
""",
        ("landlock",),
    ),
    Attack(
        "secrets in the environment",
        """
import hashlib
pointer = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
values = list(os.environb.values())
for i in range(1000):
    if not pointer[i]:
        break
    values.append(pointer[i].partition(b"=")[2])
if target["secret_hash"] in [hashlib.sha256(value).hexdigest() for value in values]:
    print("SUCCEEDED")
""",
        ("clean parent",),
    ),
    Attack(
        "memory of the parent, by frames and the garbage collector",
        """
import gc, hashlib
frame, values = sys._getframe(), []
while frame is not None:
    values += frame.f_locals.values()
    values += frame.f_globals.values()
    frame = frame.f_back
for container in gc.get_objects():
    if isinstance(container, dict):
        values += list(container.values())
    elif isinstance(container, (list, tuple)):
        values += container
texts = {value.encode(errors="replace") for value in values if type(value) is str}
if target["secret_hash"] in [hashlib.sha256(text).hexdigest() for text in texts]:
    print("SUCCEEDED")
""",
        ("clean parent",),
    ),
    Attack(
        "inherited descriptors",
        """
for descriptor in range(3, 512):
    attempt(descriptor, os.write, descriptor, b'{"status": 0, "cpu_seconds": 0}')
    attempt(descriptor, os.fstat, descriptor)
""",
        ("closed_descriptors",),
    ),
    Attack(
        "shared memory",
        """
try:
    open("/dev/shm/" + target["marker"], "w").close()
except OSError:
    pass
def persist():
    identity = syscall("shmget", 0, ctypes.c_size_t(4096), 0o1600)
    if identity >= 0:
        syscall("shmctl", identity, 0, None)
    return identity
attempt("System V", persist)
attempt("semaphores", lambda: syscall("semget", 0, 1, 0o1600))
attempt("message queue", lambda: syscall("mq_open", b"attack", 0o101, 0o600, None))
attempt("file in memory", lambda: os.memfd_create("attack"))
""",
        ("landlock", "seccomp"),
    ),
    Attack(
        "TCP",
        """
import socket
def connect(family, address):
    with socket.socket(family) as client:
        client.settimeout(1)
        client.connect(address)
attempt("connect", connect, socket.AF_INET, ("127.0.0.1", target["tcp"]))
attempt("bind", lambda: socket.create_server(("127.0.0.1", 0)).close())
attempt("IPv6", lambda: socket.socket(socket.AF_INET6).close())
""",
        ("landlock", "seccomp"),
    ),
    Attack(
        "UDP, raw and other sockets",
        """
import socket
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("127.0.0.1", target["udp"]))
attempt("UDP", send)
for name, family, kind in (("raw", 2, 3), ("netlink", 16, 3), ("packet", 17, 3), ("vsock", 40, 1)):
    attempt(name, lambda: socket.socket(family, kind).close())
""",
        ("seccomp",),
    ),
    Attack(
        "Unix sockets",
        """
import socket
def connect(address):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
attempt("path", connect, target["unix"])
attempt("abstract name", connect, target["abstract"])
def send_by_pair(kind):
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    ours.sendto(b"x", target["unix_datagrams"])
attempt("datagrams of a pair", send_by_pair, socket.SOCK_DGRAM)
""",
        ("landlock", "seccomp"),
    ),
)

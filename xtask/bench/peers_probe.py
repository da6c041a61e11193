"""Runs inside each sandbox and says, one JSON object, which of these were refused. All harmless, all on loopback."""
import ctypes, errno, json, os, socket, sys, time

A = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return result


def read(path, size=64):
    with open(path, "rb") as file:
        return file.read(size)


def write(path, text=b"x", mode="wb"):
    with open(path, mode) as file:
        file.write(text)


def tcp(protocol=0):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(2)
        sock.connect(("127.0.0.1", A["tcp"]))
        assert sock.recv(2) == b"hi"


def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.sendto(b"x", ("127.0.0.1", A["udp"]))
        sock.recv(8)


def unix_stream():
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(1)
        sock.connect(A["stream"])
        assert sock.recv(2) == b"hi"


def unix_datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendmsg([b"x"], [], 0, A["datagram"])


def memory_program():
    fd = os.memfd_create("x")
    os.write(fd, read("/bin/true", 1 << 22))
    if os.spawnv(os.P_WAIT, f"/proc/{os.getpid()}/fd/{fd}", ["x"]):
        raise OSError(errno.EACCES, "memfd")


def forks():
    children = []
    try:
        for _ in range(600):
            child = os.fork()
            if child == 0:
                time.sleep(20)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)


def hook():
    write(A["ws"] + "/repo/.git/hooks/post-checkout", b"#!/bin/sh\n")


def nested_hook():
    write(A["ws"] + "/deep/nested/.git/hooks/post-checkout", b"#!/bin/sh\n")


def keyring():
    call(248, b"user\0", b"agent-mcp-bench\0", b"x\0", 1, -3)


PROBES = {
    "read a secret outside": lambda: read(A["secret"]),
    "stat a path outside": lambda: os.stat(A["secret"]),
    "write outside": lambda: write(A["outside"] + "/written"),
    "write to a FIFO outside": lambda: os.write(os.open(A["outside"] + "/fifo", os.O_WRONLY | os.O_NONBLOCK), b"x"),
    "another process's environment": lambda: read(f"/proc/{A['canary']}/environ"),
    "signal another process": lambda: os.kill(A["canary"], 0),
    "an inherited descriptor (251)": lambda: os.pread(251, 1, 0),
    "TCP to the host's loopback": tcp,
    "MPTCP to the host's loopback": lambda: tcp(262),
    "UDP to the host's loopback": udp,
    "a pathname socket outside": unix_stream,
    "a datagram socket outside (sendmsg)": unix_datagram,
    "a new user namespace": lambda: call(272, 0x10000000),
    "a program made in memory": memory_program,
    "io_uring": lambda: call(425, 1, ctypes.create_string_buffer(256)),
    "userfaultfd": lambda: call(323, 1),
    "the kernel's keyring": keyring,
    "600 processes": forks,
    "write a git hook": hook,
    "write a nested repository's hook": nested_hook,
    "the caller's environment": lambda: os.environ["FAKE_SECRET"],
}

answers = {}
for name, probe in PROBES.items():
    try:
        probe()
        answers[name] = "open"
    except KeyError:
        answers[name] = "refused"
    except (OSError, AssertionError):
        answers[name] = "refused"
print(json.dumps(answers))

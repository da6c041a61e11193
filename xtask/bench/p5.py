"""P-5: `agent_status` round trips, one after another, while a run is active; the same against the TypeScript SDK's echo
server. One client for both: raw pipes, one kept raw connection.

usage: p5.py AGENT_MCP NODE ECHO [CALLS]"""
import json, os, re, socket, statistics, subprocess, sys, tempfile, threading, time

agent, node, echo = sys.argv[1:4]
calls = int(sys.argv[4]) if len(sys.argv) > 4 else 3000
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def message(method, params, number=None):
    body = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(body if number is None else {**body, "id": number}).encode()


class Pipes:
    def __init__(self, argv, cwd):
        self.child = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.ask(message("initialize", HELLO, 0))
        os.write(self.child.stdin.fileno(), message("notifications/initialized", {}) + b"\n")

    def ask(self, body):
        os.write(self.child.stdin.fileno(), body + b"\n")
        return self.child.stdout.readline()

    def end(self):
        self.child.stdin.close()
        self.child.wait(20)


class Socket:
    def __init__(self, argv, cwd):
        self.child = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for line in self.child.stderr:
            found = re.search(rb"http://127.0.0.1:(\d+)/mcp", line)
            if found:
                break
        # What is said later must not fill the pipe.
        threading.Thread(target=self.child.stderr.read, daemon=True).start()
        self.stream = socket.create_connection(("127.0.0.1", int(found[1])))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask(message("initialize", HELLO, 0))

    def ask(self, body):
        head = (
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2025-11-25\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.stream.sendall(head.encode() + body)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.stream.recv(65536)
        head, _, rest = data.partition(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], data
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if length:
            while len(rest) < int(length[1]):
                rest += self.stream.recv(65536)
        else:  # chunked
            while not rest.endswith(b"0\r\n\r\n"):
                rest += self.stream.recv(65536)
            rest = rest.split(b"\r\n", 1)[1].rsplit(b"\r\n0\r\n", 1)[0]
        return rest

    def end(self):
        self.stream.close()
        self.child.terminate()
        self.child.wait(20)


def measure(server, task):
    body = message("tools/call", {"name": "agent_status", "arguments": {"task_id": task}}, 1)
    times = []
    for turn in range(calls + 200):
        start = time.perf_counter()
        answer = server.ask(body)
        took = time.perf_counter() - start
        assert b"task_id" in answer and b'"isError":true' not in answer, answer
        if turn >= 200:
            times.append(took)
    times.sort()
    return 1 / statistics.mean(times), statistics.median(times), times[len(times) * 99 // 100]


with tempfile.TemporaryDirectory() as place:
    # A model that never answers keeps the run active.
    silent = socket.create_server(("127.0.0.1", 0))
    os.mkdir(f"{place}/ws")
    config = f"{place}/agent.yaml"
    with open(config, "w") as file:
        file.write(
            f"schema_version: 2\nollama:\n  endpoint: http://127.0.0.1:{silent.getsockname()[1]}\n  model: m\n"
            "sandbox:\n  workspaces: [ws]\nmcp:\n  http: {port: 0}\n"
        )
    os.environ["XDG_STATE_HOME"] = f"{place}/state"
    subprocess.run([agent, "apply", "--yes", "--config", config], check=True, stdout=subprocess.DEVNULL)
    print("| server | transport | round trips/s | p50 us | p99 us | p99/p50 |\n|---|---|---|---|---|---|")
    found = {}
    for turn in range(3):
        for name, way, kind, argv in [
            ("agent-mcp", "stdio", Pipes, [agent, "serve", "--config", config]),
            ("TypeScript SDK", "stdio", Pipes, [node, echo]),
            ("agent-mcp", "http", Socket, [agent, "serve", "--transport", "http", "--config", config]),
            ("TypeScript SDK", "http", Socket, [node, echo, "http"]),
        ]:
            server = kind(argv, f"{place}/ws")
            task = "00000000-0000-4000-8000-000000000000"
            if name == "agent-mcp":
                started = message("tools/call", {"name": "agent_run", "arguments": {"request": "wait"}}, 1)
                task = re.search(rb"task_id: ([0-9a-f-]{36})", server.ask(started))[1].decode()
            found.setdefault((name, way), []).append(measure(server, task))
            server.end()
    for (name, way), rounds in found.items():
        rate, p50, p99 = (statistics.median(column) for column in zip(*rounds))
        print(f"| {name} | {way} | {rate:,.0f} | {p50 * 1e6:.0f} | {p99 * 1e6:.0f} | {p99 / p50:.1f} |")

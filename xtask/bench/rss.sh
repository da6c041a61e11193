#!/usr/bin/env bash
# P-4, second half: resident memory of an idle `agent-mcp serve`, after initialize. Target: at most 25 MiB.
set -euo pipefail
cargo xtask release
OURS=${CARGO_TARGET_DIR:-$(pwd)/target}/$(rustc -vV | sed -n 's/^host: //p')/dist/agent-mcp
W=$(mktemp -d); trap 'rm -rf "$W"' EXIT
mkdir "$W/ws"
cat > "$W/agent.yaml" <<Y
schema_version: 2
ollama: { model: none }
sandbox: { workspaces: [ws] }
state: { directory: "$W/state" }
Y
export XDG_STATE_HOME="$W/own"
"$OURS" apply --yes --config "$W/agent.yaml" >/dev/null
python3 - "$OURS" "$W" <<'PY'
import json, subprocess, sys, time
ours, w = sys.argv[1:]
p = subprocess.Popen([ours, "serve", "--config", f"{w}/agent.yaml"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
def ask(message):
    p.stdin.write(json.dumps(message) + "\n"); p.stdin.flush()
    return json.loads(p.stdout.readline()) if "id" in message else None
ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "rss", "version": "1"}}})
ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
time.sleep(1)
rss = next(int(line.split()[1]) for line in open(f"/proc/{p.pid}/status") if line.startswith("VmRSS"))
print(f"idle RSS {rss/1024:.1f} MiB (target 25)")
p.stdin.close(); print("exit", p.wait(5))
PY

#!/usr/bin/env bash
# P-1: `agent-mcp exec -- true` against bwrap with an equal filesystem view, round-robin. Needs bwrap and python3.
set -euo pipefail
# As released: static, so that a start loads no library.
cargo xtask release
OURS=${CARGO_TARGET_DIR:-$(pwd)/target}/$(rustc -vV | sed -n 's/^host: //p')/dist/agent-mcp
command -v bwrap >/dev/null || { echo "needs: bwrap"; exit 1; }
WS=$(mktemp -d); STATE=$(mktemp -d); trap 'rm -rf "$WS" "$STATE"' EXIT
[ "$(id -u)" != 0 ] || [ -z "${BENCH_USER:-}" ] || { chown -R "$BENCH_USER" "$WS" "$STATE"; }
cat > "$WS/bench.py" <<'PY'
import os, statistics, subprocess, sys, time
ours, ws, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
peers = {
    "bare": ["/bin/true"],
    "agent-mcp exec": [ours, "exec", "--mode", "workspace-write", "--root", ws, "--", "/bin/true"],
    "bwrap": ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", ws, ws, "--unshare-all",
              "--die-with-parent", "--new-session", "--", "/bin/true"],
}
times = {name: [] for name in peers}
for turn in range(rounds + 5):
    for name, argv in peers.items():
        start = time.perf_counter()
        done = subprocess.run(argv, cwd=ws, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        took = time.perf_counter() - start
        if done.returncode:
            sys.exit(f"{name}: status {done.returncode}: {done.stderr.decode()[-300:]}")
        if turn >= 5:
            times[name].append(took)
print("| peer | median ms | min ms | p90 ms | x bwrap |\n|---|---|---|---|---|")
base = statistics.median(times["bwrap"])
for name, values in times.items():
    values.sort()
    median = statistics.median(values)
    print(f"| {name} | {median*1e3:.2f} | {values[0]*1e3:.2f} | {values[len(values)*9//10]*1e3:.2f} | {median/base:.2f} |")
PY
export XDG_STATE_HOME=$STATE
if [ "$(id -u)" = 0 ] && [ -n "${BENCH_USER:-}" ]; then
  cp "$OURS" "$WS/agent-mcp-bin"; chmod 755 "$WS" "$WS/agent-mcp-bin"; chown -R "$BENCH_USER" "$WS"
  exec setpriv --reuid="$BENCH_USER" --regid="$BENCH_USER" --clear-groups env XDG_STATE_HOME="$STATE" HOME="$WS" python3 "$WS/bench.py" "$WS/agent-mcp-bin" "$WS" "${ROUNDS:-200}"
fi
python3 "$WS/bench.py" "$OURS" "$WS" "${ROUNDS:-200}"

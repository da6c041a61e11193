#!/usr/bin/env bash
# P-5: `agent_status` round trips over stdio and HTTP against the TypeScript SDK's echo server. Needs npm and python3.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cargo xtask release
ours=$(realpath "${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/dist/agent-mcp")
place=$(mktemp -d); trap 'rm -rf "$place"' EXIT
cp "$here/p5_echo.mjs" "$place"
(cd "$place" && npm init -y >/dev/null && npm install --no-audit --no-fund --loglevel=error node@22.23.3 @modelcontextprotocol/sdk@1 zod@3 >/dev/null)
PYTHONUNBUFFERED=1 python3 "$here/p5.py" "$ours" "$place/node_modules/node/bin/node" "$place/p5_echo.mjs" "$@"
